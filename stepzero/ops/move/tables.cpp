#include "stepzero/ops/move/tables.hpp"

#include <cmath>
#include <numbers>

#include "stepzero/ops/move/vectors.hpp"

namespace stepzero {

namespace {

// eq: 1 where tokens share a row that has a gradient.
Direct direct_table(const Update& u, const Square& eq, const Square& G, double n, std::span<const double> more,
                    std::span<const double> told_here, TableMove* note) {
  const Index tokens = G.tokens();
  Direct out{Square(tokens), Square(tokens), 0, 0, {}};
  if (!u.moves()) return out;
  const Square pulls = between(eq, G);  // c
  std::vector<double> rows;             // tokens of each token's row
  const auto told = [&](Index t) { return told_here.empty() ? 1 : told_here[static_cast<std::size_t>(t)]; };
  double squares = 0, own = 0;
  for (Index t = 0; t < tokens; ++t) {
    double same = 0;
    for (Index s = 0; s < tokens; ++s) same += eq(t, s);
    rows.push_back(same);
    if (same > 0) squares += pulls(t, t) / same;
    if (same > 0 && told(t) > 0) out.norm2 += u.times * u.times * pulls(t, t) / same;
  }
  note->eq = eq;
  note->update = u;
  if (u.rule == Update::Rule::sgd) {
    out.A = u.times * eq;
    if (!more.empty()) {
      out.R = Square::from(tokens, [&](Index t, Index s) { return u.times * u.times * eq(t, s) * more[static_cast<std::size_t>(t)] / n; });
    }
    out.decrease = u.times * squares;
    return out;
  }
  out.norm2 = 0;
  std::vector<double> scale, second;  // c1 sqrt(n / c), c2
  std::vector<double> share;          // of the row's gradient that comes from here
  for (Index t = 0; t < tokens; ++t) {
    const auto i = static_cast<std::size_t>(t);
    const double all = pulls(t, t) + (more.empty() ? 0 : more[i]);
    const SignNumbers numbers = all > 0 ? sign_numbers(u.eps / std::sqrt(all / n)) : SignNumbers{0, 0};
    scale.push_back(all > 0 ? numbers.first * std::sqrt(n / all) : 0);
    second.push_back(numbers.second);
    share.push_back(all > 0 ? std::sqrt(pulls(t, t) / all) : 0);
    if (rows[i] > 0) {
      out.norm2 += told(t) * numbers.second * n / rows[i];
      own += scale[i] * pulls(t, t) / rows[i];
    }
  }
  out.decrease = own;
  for (Index t = 0; t < tokens; ++t) note->all.push_back(pulls(t, t) + (more.empty() ? 0 : more[static_cast<std::size_t>(t)]));
  note->eq = eq;
  note->update = u;
  note->scale = scale;
  note->second = second;
  out.A = Square::from(tokens, [&](Index t, Index s) { return scale[static_cast<std::size_t>(t)] * eq(t, s); });
  out.R = Square::from(tokens,
                       [&](Index t, Index s) {
                         const double size = pulls(t, t) * pulls(s, s);
                         const auto a = static_cast<std::size_t>(t), b = static_cast<std::size_t>(s);
                         const double rho = size > 0 ? pulls(t, s) / std::sqrt(size) * share[a] * share[b] : 0;
                         const double whole = eq(t, s) > 0 ? 1 : 2 / std::numbers::pi * std::asin(std::clamp(rho, -1.0, 1.0));
                         return std::sqrt(second[a] * second[b]) * whole;
                       }) -
          (1 / n) * between(out.A, G);
  return out;
}

double share_below(const Update& u, const Square& eq, const Square& G, double n) {
  if (u.rule != Update::Rule::sign || !(u.eps > 0)) return -1;
  const Square pulls = between(eq, G);
  double below = 0, count = 0;
  for (Index t = 0; t < G.tokens(); ++t) {
    double same = 0;
    for (Index s = 0; s < G.tokens(); ++s) same += eq(t, s);
    if (!(same > 0)) continue;
    count += 1 / same;
    below += (pulls(t, t) > 0 ? std::erf(u.eps / std::sqrt(2 * pulls(t, t) / n)) : 1) / same;
  }
  return count > 0 ? below / count : -1;
}

// E of the product of the signs that tokens t and s have in two tables, beyond A G A'.
Square both_signs(const TableMove& a, const TableMove& b, const Square& G, double n) {
  Square pulls(G.tokens());
  const Square half = a.eq * G;
  gemm<double>(Trans::no, Trans::yes, 1.0, half.view(), b.eq.view(), 0.0, pulls.view());
  return Square::from(G.tokens(), [&](Index t, Index s) {
    const auto i = static_cast<std::size_t>(t), j = static_cast<std::size_t>(s);
    const double size = a.all[i] * b.all[j];
    if (!(size > 0)) return 0.0;
    const double rho = std::clamp(pulls(t, s) / std::sqrt(size), -1.0, 1.0);
    return std::sqrt(a.second[i] * b.second[j]) * 2 / std::numbers::pi * std::asin(rho) - a.scale[i] * b.scale[j] * pulls(t, s) / n;
  });
}

}  // namespace

Mover move(const TokenEmbedding& op, const MoveDoor& p) {
  const auto& id = p.batch.ids_for(op.encoder);
  const double n = static_cast<double>(op.width);
  const Square G = Square::of(p.G);
  const Square eq = Square::from(G.tokens(), [&](Index t, Index s) { return id[t] == id[s] && id[t] != op.padding ? 1 : 0; });
  TableMove note;
  const auto d = std::make_shared<const Direct>(direct_table(p.updates[0], eq, G, n, p.more, p.told_here, &note));
  const Square size = d->size(G, n), K = Square::of(p.y.K);
  const double mean = size.trace() / static_cast<double>(G.tokens());
  Mover out;
  out.params = {{d->norm2, d->decrease, mean, p.more.empty() ? share_below(p.updates[0], eq, G, n) : -1}};
  out.tables = {note};
  out.run = [d, size, K, u = p.updates[0]](std::span<const WireChange* const>, const Factor& factor) {
    const double rate = factor.of(u), lost = rate * u.decay;
    WireChange y{.response = rate * d->A, .size = (rate * rate) * size, .stretch = Square(K.tokens())};
    if (lost != 0) {
      y.stretch += -lost * Square::one(K.tokens());
      y.size += (lost * lost) * K;
    }
    y.direct = y.size.trace() / static_cast<double>(K.tokens());
    return y;
  };
  return out;
}

Mover move(const LearnedPosition& op, const MoveDoor& p) {
  const double n = static_cast<double>(op.width);
  const Index tokens = p.G.tokens();
  // tokens that share a row are those that a table of ones makes alike
  const DownWire nothing{Moment{.K = Kernel::from(tokens, [](Index, Index) { return 0.0; })}};
  const DownWire* const x[] = {&nothing};
  const Law ones[] = {{.mean = 0, .variance = 1}};
  const Square eq = Square::of(op.push({p.batch, x, ones}).K), G = Square::of(p.G);
  TableMove note;
  const auto d = std::make_shared<const Direct>(direct_table(p.updates[0], eq, G, n, {}, {}, &note));
  std::vector<std::pair<double, Square>> signs;  // with other tables: their rate, and what is beyond the responses
  for (const TableMove& other : p.tables) {
    if (!other.scale.empty() && !note.scale.empty()) signs.emplace_back(other.update.rate, both_signs(other, note, G, n).symmetric());
  }
  const Square size = d->size(G, n), K = Square::of(p.x[0]->K), inverse = inverse_of(Square::of(p.y.K));
  const Square table = p.theta[0].second_moment() * eq;
  Mover out;
  out.params = {{d->norm2, d->decrease, size.trace() / static_cast<double>(tokens), share_below(p.updates[0], eq, G, n)}};
  out.tables.assign(p.tables.begin(), p.tables.end());
  out.tables.push_back(note);
  out.run = [d, size, K, G, table, inverse, signs, n, u = p.updates[0]](std::span<const WireChange* const> dx, const Factor& factor) {
    const WireChange& c = *dx[0];
    const double rate = factor.of(u), lost = rate * u.decay;
    const Square A = rate * d->A;
    Square cross(K.tokens());
    const Square left = c.response * G;
    gemm<double>(Trans::no, Trans::yes, 1 / n, left.view(), A.view(), 0.0, cross.view());
    WireChange y{.response = c.response + A, .size = c.size + (rate * rate) * size + 2.0 * cross.symmetric(), .stretch = c.stretch * K};
    for (const auto& [of_other, both] : signs) y.size += (2 * rate * factor.times * of_other) * both;
    if (lost != 0) {
      y.size += (lost * lost) * table;
      y.stretch += -lost * table;
    }
    y.stretch = y.stretch * inverse;
    y.direct =
        (rate * rate) * size.trace() / static_cast<double>(K.tokens()) + lost * lost * table.trace() / static_cast<double>(K.tokens());
    y.carried = c.size.trace() / static_cast<double>(K.tokens());
    return y;
  };
  return out;
}

Mover move(const SinusoidalPosition&, const MoveDoor& p) {
  const Square K = Square::of(p.x[0]->K), inverse = inverse_of(Square::of(p.y.K));
  Mover out;
  out.run = [K, inverse](std::span<const WireChange* const> dx, const Factor&) {
    WireChange y = *dx[0];
    y.stretch = y.stretch * K * inverse;
    y.apart = {};
    y.channels = nullptr;
    return y;
  };
  return out;
}

namespace {

// A vector that some tokens share: the law of a bias over them.
Direct direct_shared(const Update& u, const Square& among, const Square& G, double n) {
  Direct d = direct_bias(u, by_entry(among, G), n);
  d.A = by_entry(among, d.A);
  d.R = by_entry(among, d.R);
  return d;
}

double square(double x) { return x * x; }

// A matrix over inputs X (tokens, inputs) that are known: input i has entries of deviation s_i, s_i^2 = x_i' G x_i / n, and two of them
// signs of correlation (2/pi) asin(rho), rho = x_i' G x_j / (n s_i s_j); near eps the linear part of that counts for more.
Direct direct_known(const Update& u, const Tensor<double>& X, const Square& G, double n) {
  const Index tokens = X.rows(), inputs = X.cols();
  Direct out{Square(tokens), Square(tokens), 0, 0, {}};
  if (!u.moves()) return out;
  const auto gram = [&](const Tensor<double>& a, const Tensor<double>& b) {
    Square g(tokens);
    gemm<double>(Trans::no, Trans::yes, 1.0, a.view(), b.view(), 0.0, g.view());
    return g;
  };
  if (u.rule == Update::Rule::polar) {
    const double m = static_cast<double>(inputs);
    return direct(u, {.K = (1 / m) * gram(X, X), .G = G, .whole = {}, .n_in = m, .n_out = n, .whole_out = n});
  }
  if (u.rule == Update::Rule::sgd) {
    out.A = u.times * gram(X, X);
    out.decrease = inner(out.A, G);
    out.norm2 = u.times * out.decrease;
    return out;
  }
  Tensor<double> half(tokens, inputs), meet(inputs, inputs);  // G X / n, X' G X / n
  gemm<double>(Trans::no, Trans::no, 1 / n, G.view(), X.view(), 0.0, half.view());
  gemm<double>(Trans::yes, Trans::no, 1.0, X.view(), half.view(), 0.0, meet.view());
  std::vector<double> s, first, second;
  for (Index i = 0; i < inputs; ++i) {
    s.push_back(std::sqrt(std::max(meet(i, i), 0.0)));
    const SignNumbers k = s.back() > 0 ? sign_numbers(u.eps / s.back()) : SignNumbers{0, 0};
    first.push_back(s.back() > 0 ? k.first / s.back() : 0);
    second.push_back(k.second);
    out.norm2 += n * k.second;
  }
  const auto at = [](const std::vector<double>& list, Index i) { return list[static_cast<std::size_t>(i)]; };
  for (Index i = 0; i < inputs; ++i) {
    for (Index j = 0; j < inputs; ++j) {
      const double sizes = at(s, i) * at(s, j), rho = sizes > 0 ? std::clamp(meet(i, j) / sizes, -1.0, 1.0) : 0;
      // the linear part of both, and of the rest what a sign has of it
      const double line = at(first, i) * at(first, j) * sizes;
      const double rest = std::sqrt(std::max(at(second, i) - square(at(first, i) * at(s, i)), 0.0) *
                                    std::max(at(second, j) - square(at(first, j) * at(s, j)), 0.0));
      meet(i, j) = line * rho + rest * (i == j ? 1 : (std::asin(rho) - rho) / (std::numbers::pi / 2 - 1));
    }
  }
  Tensor<double> signs(tokens, inputs);
  gemm<double>(Trans::no, Trans::no, 1.0, X.view(), meet.view(), 0.0, signs.view());
  for (Index t = 0; t < tokens; ++t) {
    for (Index i = 0; i < inputs; ++i) half(t, i) = X(t, i) * at(first, i);
  }
  out.A = gram(half, X);
  out.R = gram(signs, X) - (1 / n) * between(out.A, G);
  out.decrease = inner(out.A, G);
  return out;
}

double share_below(const Update& u, double squares, double entries) {
  if (u.rule != Update::Rule::sign || !(u.eps > 0)) return -1;
  return squares > 0 ? std::erf(u.eps / std::sqrt(2 * squares / entries)) : 1;
}

}  // namespace

Mover move(const PatchEmbedding& op, const MoveDoor& p) {
  struct Part {
    Direct d;
    Update u;
    Square K;  // that the parameter makes of the output
  };
  const Square G = Square::of(p.G);
  const double n = static_cast<double>(op.width), n_in = static_cast<double>(op.size());
  // what each parameter meets, by its share of the output's kernel
  const auto meets = [&](std::size_t k) {
    std::vector<Law> laws(p.theta.size());
    laws[k].variance = 1;
    return Square::of(op.push({p.batch, {}, laws}).K);
  };
  auto parts = std::make_shared<std::vector<Part>>();
  Mover out;
  const double tokens = static_cast<double>(G.tokens());
  PatchEmbedding of_one = op;  // with the identity as its matrix it hands on the patches
  of_one.width = op.size();
  of_one.bias = false;
  Tensor<double> X(G.tokens(), op.size()), none(1, op.size());
  std::fill_n(none.data(), none.size(), 0.0);
  const Square one = Square::one(op.size());
  std::vector<View<const double>> identity = {one.view()};
  if (op.class_token) identity.push_back(none.view());
  of_one.forward(Down<double>{p.batch, {}, identity, X.view(), {}});
  for (std::size_t k = 0; k < p.theta.size(); ++k) {
    const Square among = meets(k);
    const Update& u = p.updates[k];
    const bool matrix = k == 0;
    const Direct d = matrix ? direct_known(u, X, G, n) : direct_shared(u, among, G, n);
    out.params.push_back({d.norm2, d.decrease, d.size(G, n).trace() / tokens, share_below(u, inner(among, G), matrix ? n_in * n : n)});
    parts->push_back({d, u, p.theta[k].second_moment() * among});
  }
  out.run = [parts, G, n, tokens, K = Square::of(p.y.K), inverse = inverse_of(Square::of(p.y.K))](std::span<const WireChange* const>,
                                                                                                  const Factor& factor) {
    WireChange y{.response = Square(G.tokens()), .size = Square(G.tokens()), .stretch = Square(G.tokens())};
    for (const Part& part : *parts) {
      const double rate = factor.of(part.u), lost = rate * part.u.decay;
      y.response += rate * part.d.A;
      y.size += (rate * rate) * part.d.R + (lost * lost) * part.K;
      if (lost != 0) y.stretch += -lost * (part.K * inverse);
    }
    y.size += (1 / n) * between(y.response, G);
    y.direct = y.size.trace() / tokens;
    return y;
  };
  return out;
}

}  // namespace stepzero
