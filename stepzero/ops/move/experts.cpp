#include "stepzero/ops/move/experts.hpp"

#include <algorithm>
#include <cmath>

#include "stepzero/ops/finite/function.hpp"
#include "stepzero/ops/finite/linear.hpp"
#include "stepzero/ops/finite/multiply.hpp"
#include "stepzero/ops/kernel_draw.hpp"
#include "stepzero/ops/move/drawn.hpp"
#include "stepzero/ops/move/linear.hpp"
#include "stepzero/ops/move/pointwise.hpp"

namespace stepzero {

namespace {

template <class Op>
DownWire push(const Op& op, const Batch& batch, std::vector<const DownWire*> x, std::vector<Law> theta) {
  DownWire y = push_finite(op, PushDoor{batch, x, theta});
  y.width = op.channels();
  return y;
}

AnyOp activation_of(const Experts& op) {
  return std::visit(
      [&](auto f) -> AnyOp {
        f.width = op.ffn;
        return f;
      },
      op.act);
}

DownWire some_of(const DownWire& x, const std::vector<Index>& tokens) {
  const auto at = [&](Index i) { return tokens[static_cast<std::size_t>(i)]; };
  DownWire out;
  out.K = Kernel::from(std::ssize(tokens), [&](Index t, Index s) { return x.K(at(t), at(s)); });
  for (Index i = 0; !x.mean.empty() && i < std::ssize(tokens); ++i) out.mean.push_back(x.mean_at(at(i)));
  out.width = x.width;
  out.f = x.f;
  out.f.noise += x.f.mean_jitter();
  out.f.jitter.clear();
  out.f.fresh.clear();
  return out;
}

Square some_of(const Square& x, const std::vector<Index>& tokens) {
  return Square::from(std::ssize(tokens),
                      [&](Index t, Index s) { return x(tokens[static_cast<std::size_t>(t)], tokens[static_cast<std::size_t>(s)]); });
}

// The laws of one expert's matrices W, V, U and of its biases, and their updates; W and V may be parts of one.
struct OneOf {
  std::array<std::size_t, 3> matrix;
  std::array<std::size_t, 2> bias;

  OneOf(const Experts& op, Index e) {
    const auto first = static_cast<std::size_t>(op.matrices() * e);
    matrix = op.fused ? std::array{first, first, first + 1} : std::array{first, first + 1, first + 2};
    const auto biases = static_cast<std::size_t>(op.matrices() * op.routing.experts + 2 * e);
    bias = {biases, biases + 1};
  }
  template <class T>
  [[nodiscard]] std::vector<T> in(const Experts& op, std::span<const T> of, std::size_t which) const {
    return op.bias ? std::vector<T>{of[matrix[which]], of[bias[which == 2 ? 1 : 0]]} : std::vector<T>{of[matrix[which]]};
  }
};

// One expert over the tokens that chose it.
struct Expert {
  Index which = 0;
  std::vector<Index> tokens;
  Mover gate, up, out;
  ChainMover between;

  // The change of its output.
  [[nodiscard]] WireChange run(const WireChange& x, const Factor& factor) const {
    const WireChange* const from[] = {&x};
    const WireChange u = gate.run(from, factor), v = up.run(from, factor);
    const WireChange* const both[] = {&u, &v};
    const std::vector<WireChange> h = between.run(both, factor);
    const WireChange* const hidden[] = {&h.back()};
    return out.run(hidden, factor);
  }
};

WireChange some_of(const WireChange& x, const Square& K, const std::vector<Index>& tokens) {
  const Square own = some_of(K, tokens);
  return {.response = some_of(x.response, tokens),
          .size = some_of(x.size, tokens),
          .stretch = some_of(x.stretch * K, tokens) * inverse_of(own)};
}

// What one drawn router makes of the tokens.
struct Routed {
  Tensor<double> gates;  // (T, E), zeros where an expert was not chosen
  DrawnInput logits;
  std::vector<double> correction;
  std::vector<Expert> experts;
};

struct State {
  Experts op;
  std::vector<Routed> draws;
  Index whole = 0;                  // draws whose experts are prepared, the first ones
  Square x, y, G, inverse, routes;  // kernels of what experts read, of what one of them yields, and of dy; inverse of the output's; (3)
};

Tensor<double> gates_of(const Routing& routing, const Tensor<double>& logits, const std::vector<double>& correction,
                        Tensor<double>* which = nullptr) {
  Tensor<double> gates(logits.rows(), routing.experts);
  std::fill_n(gates.data(), gates.size(), 0.0);
  std::vector<double> chosen(static_cast<std::size_t>(routing.chosen)), weight(chosen.size());
  for (Index t = 0; t < logits.rows(); ++t) {
    routing.choose(logits.view().row(t), correction.empty() ? nullptr : correction.data(), chosen.data(), weight.data());
    for (Index j = 0; j < routing.chosen; ++j) {
      gates(t, static_cast<Index>(chosen[static_cast<std::size_t>(j)])) = weight[static_cast<std::size_t>(j)];
      if (which != nullptr) (*which)(t, j) = chosen[static_cast<std::size_t>(j)];
    }
  }
  return gates;
}

// sum over experts of the changes of g_te o_te: (1), (2).
void add_changes(const State& s, const Routed& draw, const Tensor<double>& now, const std::vector<WireChange>& of_experts, double share,
                 Square& size, Square& along) {
  const Index tokens = s.x.tokens();
  std::vector<Square> Y(static_cast<std::size_t>(s.op.routing.experts)), Q(Y.size());
  std::vector<std::vector<Index>> place(Y.size(), std::vector<Index>(static_cast<std::size_t>(tokens), -1));
  for (std::size_t i = 0; i < of_experts.size(); ++i) {
    const Expert& e = draw.experts[i];
    const auto w = static_cast<std::size_t>(e.which);
    Y[w] = of_experts[i].stretch * some_of(s.y, e.tokens);
    Q[w] = of_experts[i].size;
    for (std::size_t j = 0; j < e.tokens.size(); ++j) place[w][static_cast<std::size_t>(e.tokens[j])] = static_cast<Index>(j);
  }
  for (std::size_t e = 0; e < Y.size(); ++e) {
    std::vector<Index> meets;
    for (Index t = 0; t < tokens; ++t) {
      if (now(t, static_cast<Index>(e)) != 0 || draw.gates(t, static_cast<Index>(e)) != 0) meets.push_back(t);
    }
    const auto g = [&](Index t) { return draw.gates(t, static_cast<Index>(e)); };
    const auto h = [&](Index t) { return now(t, static_cast<Index>(e)); };
    for (const Index t : meets) {
      for (const Index u : meets) {
        if (of_experts.empty() && h(t) == g(t) && h(u) == g(u)) continue;
        const Index a = place[e][static_cast<std::size_t>(t)], b = place[e][static_cast<std::size_t>(u)];
        const bool known = a >= 0 && b >= 0;  // to whom it is new, it is as it was
        const double K = s.y(t, u), ty = known ? Y[e](a, b) : 0, ut = known ? Y[e](b, a) : 0, q = known ? Q[e](a, b) : 0;
        size(t, u) += share * (h(t) * h(u) * (K + ty + ut + q) + g(t) * g(u) * K - h(t) * g(u) * (K + ty) - g(t) * h(u) * (K + ut));
        along(t, u) += share * (h(t) * g(u) * (K + ty) - g(t) * g(u) * K);
      }
    }
  }
}

struct Sums {
  Square size, along, response;

  explicit Sums(Index tokens) : size(tokens), along(tokens), response(tokens) {}
  void add(double share, const Sums& other) {
    size += share * other.size;
    along += share * other.along;
    response += share * other.response;
  }
};

// What a router's draw makes of the changes of its experts, or of experts that do not change.
Sums of_draw(const State& s, const Routed& draw, const std::vector<Tensor<double>>& gates, const std::vector<WireChange>& changes) {
  Sums to(s.x.tokens());
  for (const Tensor<double>& now : gates) {
    add_changes(s, draw, now, changes, 0.5, to.size, to.along);
    // all experts of a token answer its one gradient
    Square response(s.x.tokens());
    for (std::size_t i = 0; i < changes.size(); ++i) {
      const Expert& e = draw.experts[i];
      const Index own = std::ssize(e.tokens);
      const auto at = [&](Index j) { return e.tokens[static_cast<std::size_t>(j)]; };
      const Square part =
          Square::from(own, [&](Index j, Index k) { return now(at(j), e.which) * draw.gates(at(k), e.which) * changes[i].response(j, k); });
      const Square alone = between(part, some_of(s.G, e.tokens));
      for (Index j = 0; j < own; ++j) {
        for (Index k = 0; k < own; ++k) {
          response(at(j), at(k)) += part(j, k);
          to.size(at(j), at(k)) -= 0.5 / static_cast<double>(s.op.width) * alone(j, k);
        }
      }
    }
    if (!changes.empty()) to.size += (0.5 / static_cast<double>(s.op.width)) * between(response, s.G);
    to.response += 0.5 * response;
  }
  return to;
}

// How tokens change experts is seen in all draws, what experts do in some of them.
Sums over_draws(const State& s, const WireChange& x, const WireChange& r, const Factor& factor) {
  const Square left = root_of(r.channels->left);
  struct Seen {
    Sums routed, by_experts;
  };
  std::vector<Seen> each(s.draws.size(), Seen{Sums(s.x.tokens()), Sums(s.x.tokens())});
  parallel_for(std::ssize(each), [&](Index i) {
    const Routed& draw = s.draws[static_cast<std::size_t>(i)];
    Seen& to = each[static_cast<std::size_t>(i)];
    const Moved logits = moved(draw.logits, r, left);
    std::vector<Tensor<double>> gates;
    for (const double sign : {1.0, -1.0}) gates.push_back(gates_of(s.op.routing, logits.with(sign), draw.correction));
    to.routed = of_draw(s, draw, gates, {});
    if (i >= s.whole) return;
    std::vector<WireChange> changes;
    for (const Expert& e : draw.experts) changes.push_back(e.run(some_of(x, s.x, e.tokens), factor));
    to.by_experts = of_draw(s, draw, gates, changes);
    to.by_experts.add(-1, to.routed);
  });
  Sums mean(s.x.tokens());
  for (const Seen& one : each) {
    mean.add(1 / static_cast<double>(each.size()), one.routed);
    mean.add(1 / static_cast<double>(s.whole), one.by_experts);
  }
  return mean;
}

WireChange unmoved(const WireChange& x) {
  const Index tokens = x.size.tokens();
  auto channels = std::make_shared<ChannelMove>(ChannelMove{.matrix = nullptr, .carried = Square(tokens), .left = Square(tokens)});
  return {.response = Square(tokens), .size = Square(tokens), .stretch = Square(tokens), .channels = std::move(channels)};
}

WireChange run(const State& s, std::span<const WireChange* const> dx, const Factor& factor) {
  const double tokens = static_cast<double>(s.x.tokens());
  const Sums all = over_draws(s, *dx[0], *dx[1], factor);
  const Square by_gates = by_entry(by_entry(s.y, dx[1]->response), s.routes);
  // gates and experts answer the one gradient of y
  Square together(s.x.tokens());
  const Square half = all.response * s.G;
  gemm<double>(Trans::no, Trans::yes, 1 / static_cast<double>(s.op.width), half.view(), by_gates.view(), 0.0, together.view());
  WireChange y{.response = all.response + by_gates, .size = all.size + 2.0 * together.symmetric(), .stretch = all.along * s.inverse};
  if (!factor.told()) return y;
  const WireChange none = unmoved(*dx[0]);
  y.direct = over_draws(s, none, none, factor).size.trace() / tokens;
  Factor nothing = factor;
  nothing.times = 0;
  y.carried = over_draws(s, *dx[0], *dx[1], nothing).size.trace() / tokens;
  return y;
}

class Preparing {
 public:
  Preparing(State& s, const ExpertsDoor& p, Likeness& alike) : s_(s), p_(p), alike_(alike), told(p.updates.size()) {
    const DownWire& x = *p.inputs[0].wire;
    const OneOf first(s.op, 0);
    s.x = Square::of(x.K);
    s.G = Square::of(p.G);
    s.inverse = inverse_of(Square::of(p.y));
    s.y = Square::of(feed_forward(x, p.batch, first).o.K);
    const Index draws = std::max<Index>(8, static_cast<Index>(std::ceil(32 * p.effort)));
    s.whole = std::clamp<Index>(static_cast<Index>(std::ceil(32 * p.effort / static_cast<double>(s.op.routing.experts))), 1, draws);
    field_ = root_of(by_entry(s.y, Square::of(p.G)));
    s.routes = Square(s.x.tokens());
    const DownWire& r = *p.inputs[1].wire;
    const KernelDraw logits(r, r.shared_noise(), p.batch.length, p.place);
    const double share = 1 / static_cast<double>(draws);
    for (Index i = 0; i < draws; ++i) {
      const Routed& draw = s.draws.emplace_back(route(logits, i, share));
      pull += share * draw.logits.pull;
      direct += share * mean_direct(draw.logits);
    }
    for (Index i = 0; i < s.whole; ++i) {
      for (Index e = 0; e < s.op.routing.experts; ++e)
        add_expert(s.draws[static_cast<std::size_t>(i)], e, 1 / static_cast<double>(s.whole));
    }
  }

 private:
  // The wires of one expert.
  struct Wires {
    DownWire u, v, f, h, o;
  };
  [[nodiscard]] Linear in() const { return {.in = s_.op.width, .out = s_.op.ffn, .bias = s_.op.bias}; }
  [[nodiscard]] Linear out() const { return {.in = s_.op.ffn, .out = s_.op.width, .bias = s_.op.bias}; }
  [[nodiscard]] Multiply product() const { return {s_.op.ffn}; }
  [[nodiscard]] Wires feed_forward(const DownWire& x, const Batch& batch, const OneOf& one) const {
    Wires w;
    w.u = push(in(), batch, {&x}, one.in(s_.op, p_.theta, 0));
    w.v = push(in(), batch, {&x}, one.in(s_.op, p_.theta, 1));
    w.f = std::visit([&](const auto& f) { return push(f, batch, {&w.u}, {}); }, s_.op.act);
    w.f.width = s_.op.ffn;
    w.h = push(product(), batch, {&w.f, &w.v}, {});
    w.o = push(out(), batch, {&w.h}, one.in(s_.op, p_.theta, 2));
    return w;
  }

  [[nodiscard]] Routed route(const KernelDraw& logits, Index i, double share) {
    const Routing& routing = s_.op.routing;
    const Tensor<float> factor = logits.root(i);
    const Tensor<float> z =
        stepzero::product(Trans::no, Trans::no, factor, node_normals(p_.place, "router", i, factor.cols(), routing.experts));
    Routed draw;
    draw.logits.x = Tensor<double>(z.rows(), z.cols());
    for (Index j = 0; j < z.size(); ++j) draw.logits.x.data()[j] = static_cast<double>(z.data()[j]);
    if (routing.corrected) {
      const Tensor<float> c = node_normals(p_.place, "correction", i, 1, routing.experts);
      const Law& law = p_.theta.back();
      for (Index e = 0; e < routing.experts; ++e)
        draw.correction.push_back(law.mean + std::sqrt(law.variance) * static_cast<double>(c(0, e)));
    }
    Tensor<double> which(z.rows(), routing.chosen);
    draw.gates = gates_of(routing, draw.logits.x, draw.correction, &which);
    // gradients of the gates, those of each expert a field over the tokens
    const Tensor<double> dg = times(field_, normal_columns(p_.place, "gates", i, z.rows(), routing.experts, false));
    draw.logits.d = Tensor<double>(z.rows(), z.cols());
    std::vector<double> own(static_cast<std::size_t>(routing.chosen));
    for (Index t = 0; t < z.rows(); ++t) {
      for (std::size_t j = 0; j < own.size(); ++j) own[j] = dg(t, static_cast<Index>(which(t, static_cast<Index>(j))));
      routing.backward(draw.logits.x.view().row(t), which.view().row(t), own.data(), draw.logits.d.view().row(t));
    }
    add_routes(draw, which, share);
    const MatrixMove* m = p_.inputs[1].matrix;
    const bool polar = m != nullptr && m->weight.moves() && m->weight.rule == Update::Rule::polar;
    prepare(draw.logits, m, nullptr, polar ? m->direct.A : Square(), polar ? root_of(m->direct.R) : Square(),
            m != nullptr ? m->use.noise : 0, p_.place, i);
    return draw;
  }

  // sum over the experts that two tokens share of <J_te, J_se>
  void add_routes(const Routed& draw, const Tensor<double>& which, double share) {
    const Routing& routing = s_.op.routing;
    const Index tokens = which.rows(), k = routing.chosen;
    Tensor<double> J(tokens * k, routing.experts);
    std::vector<double> one(static_cast<std::size_t>(k), 0.0);
    for (Index i = 0; i < tokens * k; ++i) {
      one[static_cast<std::size_t>(i % k)] = 1;
      routing.backward(draw.logits.x.view().row(i / k), which.view().row(i / k), one.data(), J.view().row(i));
      one[static_cast<std::size_t>(i % k)] = 0;
    }
    for (Index t = 0; t < tokens; ++t) {
      for (Index u = 0; u < tokens; ++u) {
        for (Index j = 0; j < k; ++j) {
          for (Index l = 0; l < k; ++l) {
            if (which(t, j) != which(u, l)) continue;
            const double *a = J.view().row(t * k + j), *b = J.view().row(u * k + l);
            for (Index e = 0; e < routing.experts; ++e) s_.routes(t, u) += share * a[e] * b[e];
          }
        }
      }
    }
  }

  void add_expert(Routed& draw, Index e, double share) {
    Expert own;
    own.which = e;
    for (Index t = 0; t < draw.gates.rows(); ++t) {
      if (draw.gates(t, e) != 0) own.tokens.push_back(t);
    }
    if (own.tokens.empty()) return;
    const auto g = [&](Index i) { return draw.gates(own.tokens[static_cast<std::size_t>(i)], e); };
    const auto at = [&](Index i) { return own.tokens[static_cast<std::size_t>(i)]; };
    Batch batch;
    batch.length = std::ssize(own.tokens);
    const DownWire x = some_of(*p_.inputs[0].wire, own.tokens);
    const OneOf one(s_.op, e);
    const Wires w = feed_forward(x, batch, one);
    // gradients up to the hidden wires
    const UpWire dy(Kernel::from(batch.length, [&](Index t, Index s) { return g(t) * g(s) * p_.G(at(t), at(s)); }));
    const auto up_through = [&](const auto& op, std::vector<const DownWire*> in, const std::vector<Law>& theta, const DownWire& y,
                                const UpWire& d) { return pull_finite(op, PullDoor{batch, in, theta, y, d}).dx; };
    const auto dh = up_through(out(), {&w.h}, one.in(s_.op, p_.theta, 2), w.o, dy);
    const auto dm = up_through(product(), {&w.f, &w.v}, {}, w.h, dh[0]);
    const auto du = std::visit([&](const auto& f) { return up_through(f, {&w.u}, {}, w.f, dm[0]); }, s_.op.act);
    const Kernel &Gu = du[0].G, &Gv = dm[1].G, &Gh = dh[0].G;
    const Square both = Square::of(Gu) + Square::of(Gv);
    const double both_out = 2 * static_cast<double>(s_.op.ffn);
    const auto matrix = [&](const Linear& op, const DownWire& from, const DownWire& y, const Kernel& G, std::size_t which,
                            const Tensor<double>* drawn) {
      const auto theta = one.in(s_.op, p_.theta, which);
      const auto updates = one.in(s_.op, p_.updates, which);
      const DownWire* const in[] = {&from};
      MoveDoor door{.batch = batch,
                    .x = in,
                    .y = y,
                    .G = G,
                    .theta = theta,
                    .updates = updates,
                    .drawn = drawn,
                    .place = p_.place + static_cast<std::uint64_t>(e)};
      if (which < 2 && s_.op.fused) door.whole = {&both, 1}, door.whole_out = {&both_out, 1};
      if (drawn != nullptr) door.drawn_from = x.f.noise;
      return move(op, door);
    };
    own.gate = matrix(in(), x, w.u, Gu, 0, nullptr);
    own.up = matrix(in(), x, w.v, Gv, 1, nullptr);
    const WireChange given = some_of(*p_.given[0], s_.x, own.tokens);
    const WireChange* const from[] = {&given};
    const WireChange cu = own.gate.run(from, 1), cv = own.up.run(from, 1);
    const WireChange* const inputs[] = {&cu, &cv};
    const std::vector<ChainNode> nodes = {{activation_of(s_.op), {-1}, {}}, {product(), {0, -2}, {}}};
    const DrawnFrom stems[] = {{&w.u, &Gu, own.gate.matrix.get(), &x, p_.place}, {&w.v, &Gv, own.up.matrix.get(), &x, p_.place}};
    own.between = move_pointwise(batch, nodes, stems, Gh, s_.op.ffn, p_.place + static_cast<std::uint64_t>(e), p_.effort, inputs, alike_);
    const Tensor<double> hidden = drawn_hidden(batch, nodes, w, e);
    own.out = matrix(out(), w.h, w.o, dy.G, 2, &hidden);
    tell(own.gate, own.between.decreases[0], one, 0, share);
    tell(own.up, own.between.decreases[1], one, 1, share);
    tell(own.out, -1, one, 2, share);
    draw.experts.push_back(std::move(own));
  }

  // What the last matrix reads is not normal.
  [[nodiscard]] Tensor<double> drawn_hidden(const Batch& batch, std::vector<ChainNode> nodes, const Wires& w, Index e) const {
    constexpr Index columns = 512;
    for (ChainNode& node : nodes) node.op = *pointwise(node.op, columns);
    const Chain chain(batch, std::move(nodes));
    const auto drawn = [&](const DownWire& x, const char* name) {
      return times(root_of(Square::of(x.K)), normal_columns(p_.place, name, e, x.K.tokens(), columns, true));
    };
    std::vector<Tensor<double>> x;
    x.push_back(drawn(w.u, "u"));
    x.push_back(drawn(w.v, "v"));
    return std::move(chain.forward(std::move(x)).y.back());
  }

  void tell(const Mover& m, double decrease, const OneOf& one, std::size_t which, double share) {
    const auto add = [&](ParameterMove& to, const ParameterMove& from, double by) {
      to.norm2 += share * from.norm2;
      to.decrease += share * by * from.decrease;
      to.direct += share * from.direct;
      if (from.below >= 0) to.below = std::max(to.below, 0.0) + share * from.below;
    };
    const bool refined = decrease > 0 && m.params[0].decrease > 0 && m.matrix->weight.rule != Update::Rule::sgd;
    add(told[one.matrix[which]], m.params[0], refined ? decrease / m.params[0].decrease : 1);
    if (s_.op.bias) add(told[one.bias[which == 2 ? 1 : 0]], m.params[1], 1);
  }

  State& s_;
  const ExpertsDoor& p_;
  Likeness& alike_;
  Square field_;

 public:
  std::vector<ParameterMove> told;
  double pull = 0, direct = 0;  // of the router
};

}  // namespace

ChainMover move_experts(const Experts& op, const ExpertsDoor& p, Likeness& alike) {
  auto s = std::make_shared<State>();
  s->op = op;
  const Preparing made(*s, p, alike);
  ChainMover out;
  out.decreases = {0, made.pull};
  out.directs = {0, made.direct};
  out.params = {made.told};
  out.run = [s](std::span<const WireChange* const> dx, const Factor& factor) { return std::vector<WireChange>{run(*s, dx, factor)}; };
  return out;
}

}  // namespace stepzero
