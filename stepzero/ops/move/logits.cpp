#include "stepzero/ops/move/logits.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

#include "stepzero/ops/move/drawn.hpp"

namespace stepzero {

namespace {

// Rows of the head that stand for all.
struct Rows {
  std::vector<std::int32_t> ids;  // -1: one of the others
  std::vector<double> weight;
  std::map<std::int32_t, Index> place;

  Rows(const Batch& batch, Index vocab, const std::map<std::int32_t, double>& lookups) {
    const auto add = [&](std::int32_t id) {
      if (id < 0 || place.contains(id)) return;
      place[id] = std::ssize(ids);
      ids.push_back(id);
      weight.push_back(1);
    };
    for (const auto id : batch.ids) add(id);
    for (const auto id : batch.targets) add(id);
    for (const auto& [id, square] : lookups) add(id);
    constexpr Index others = 512;
    const Index rest = vocab - std::ssize(ids), drawn = std::min(rest, others);
    for (Index i = 0; i < drawn; ++i) {
      ids.push_back(-1);
      weight.push_back(static_cast<double>(rest) / static_cast<double>(drawn));
    }
  }
  [[nodiscard]] Index count() const { return std::ssize(ids); }
};

struct Draw {
  Tensor<double> z, d;            // logits, D_z
  Tensor<double> direct;          // y U, by drawn channels of y
  Tensor<double> other, unmoved;  // Z U with Z ~ N(0, 1) as large as y; Z W / sqrt(w)
  std::vector<double> bias;
};

struct State {
  const Batch* batch;
  Rows rows;
  std::vector<Draw> draws;
  std::vector<AnyOp> after;
  Square K, along;  // along: diag(a)
  std::vector<double> a;
  double w, n, loss = 0, scored = 1;
  Update weight, bias;
};

double value_of(const AnyOp& op, double z) {
  if (const auto* scale = std::get_if<Scale>(&op)) return scale->factor * z;
  return std::get<Softcap>(op).value()(z);
}
double slope_of(const AnyOp& op, double z) {
  if (const auto* scale = std::get_if<Scale>(&op)) return scale->factor;
  return std::get<Softcap>(op).slope()(z);
}

// Of one token: ln sum exp over the vocabulary, less the logit of the target; p where it is wanted.
double loss_of(const State& s, Index t, const double* z, double* p) {
  const Index rows = s.rows.count();
  double top = -1e300;
  for (Index v = 0; v < rows; ++v) top = std::max(top, z[v]);
  double sum = 0;
  for (Index v = 0; v < rows; ++v) {
    const double e = std::exp(z[v] - top);
    sum += s.rows.weight[static_cast<std::size_t>(v)] * e;
    if (p != nullptr) p[v] = e;
  }
  for (Index v = 0; p != nullptr && v < rows; ++v) p[v] /= sum;
  const auto target = s.batch->targets[static_cast<std::size_t>(t)];
  return top + std::log(sum) - z[s.rows.place.at(target)];
}

bool is_scored(const Batch& batch, Index t) { return batch.targets[static_cast<std::size_t>(t)] >= 0; }

// The logits after the step, but for the bias, for both signs of what knows nothing of them.
struct After {
  Tensor<double> kept, turned;

  After(const State& s, const Draw& draw, const WireChange& y, const Square& turned_z, const Square& left, double rate)
      : kept(times(turned_z, draw.z)), turned(draw.z.rows(), draw.z.cols()) {
    for (Index i = 0; i < kept.size(); ++i) kept.data()[i] += draw.z.data()[i] - rate * draw.direct.data()[i];
    gemm<double>(Trans::no, Trans::no, -s.w, y.response.view(), draw.d.view(), 1.0, kept.view());
    gemm<double>(Trans::no, Trans::no, -rate, y.stretch.view(), draw.direct.view(), 1.0, kept.view());
    Tensor<double> both(turned.rows(), turned.cols());  // by the old rows and by their update
    for (Index i = 0; i < both.size(); ++i) both.data()[i] = std::sqrt(s.w) * draw.unmoved.data()[i] - rate * draw.other.data()[i];
    gemm<double>(Trans::no, Trans::no, 1.0, left.view(), both.view(), 0.0, turned.view());
  }
};

std::vector<WireChange> run(const State& s, const WireChange& y, const Factor& factor) {
  const Index tokens = s.K.tokens(), rows = s.rows.count();
  const double rate = factor.of(s.weight), rate_b = factor.of(s.bias), kept = 1 - rate * s.weight.decay;
  const Square left = root_of(y.apart.empty() ? y.size - between(y.stretch, s.K) : y.apart);
  const Square turned =
      Square::from(tokens, [&](Index t, Index u) { return y.stretch(t, u) + y.response(t, u) * s.a[static_cast<std::size_t>(u)]; });
  struct Sums {
    std::vector<double> change;
    double loss = 0;
  };
  std::vector<Sums> sums(s.draws.size());
  parallel_for(std::ssize(s.draws), [&](Index i) {
    const Draw& draw = s.draws[static_cast<std::size_t>(i)];
    Sums& to = sums[static_cast<std::size_t>(i)];
    to.change.assign(s.after.size() + 1, 0.0);
    const After after(s, draw, y, turned, left, rate);
    std::vector<double> now(static_cast<std::size_t>(rows));
    for (const double sign : {1.0, -1.0}) {
      for (Index t = 0; t < tokens; ++t) {
        for (Index v = 0; v < rows; ++v) {
          const auto j = static_cast<std::size_t>(v);
          double was = draw.z(t, v), is = kept * (after.kept(t, v) + sign * after.turned(t, v)) - rate_b * draw.bias[j];
          to.change[0] += s.rows.weight[j] * (is - was) * (is - was);
          for (std::size_t k = 0; k < s.after.size(); ++k) {
            was = value_of(s.after[k], was);
            is = value_of(s.after[k], is);
            to.change[k + 1] += s.rows.weight[j] * (is - was) * (is - was);
          }
          now[j] = is;
        }
        if (is_scored(*s.batch, t)) to.loss += loss_of(s, t, now.data(), nullptr);
      }
    }
  });
  std::vector<WireChange> out(s.after.size() + 2);
  const double draws = 2 * static_cast<double>(s.draws.size());
  double vocab = 0;
  for (const double w : s.rows.weight) vocab += w;
  for (std::size_t k = 0; k < out.size(); ++k) {
    out[k] = {.response = Square(tokens), .size = Square(tokens), .stretch = Square(tokens)};
    double mean = 0;
    for (const Sums& one : sums) mean += k <= s.after.size() ? one.change[k] / (draws * vocab * static_cast<double>(tokens)) : 0;
    for (Index t = 0; t < tokens; ++t) out[k].size(t, t) = mean;  // in the mean over tokens
  }
  for (const Sums& one : sums) out.back().loss += one.loss / (draws * s.scored);
  return out;
}

}  // namespace

namespace {

// y U and Z U by channels: rows of the head whose gradients are alike get like updates, so that what they add is common to them, which a
// softmax does not see. Of models that are wider than `most` some channels stand for all.
void update_rows(const LogitsDoor& p, const Square& L, Draw& draw, const Tensor<double>& mean, const std::vector<double>& others, Index i) {
  const Index tokens = L.tokens(), rows = draw.d.cols();
  draw.direct = Tensor<double>(tokens, rows);
  draw.other = Tensor<double>(tokens, rows);
  std::fill_n(draw.direct.data(), draw.direct.size(), 0.0);
  std::fill_n(draw.other.data(), draw.other.size(), 0.0);
  if (!p.weight.moves()) return;
  constexpr Index most = 1024;
  const Index n = std::min<Index>(p.y.width, most);
  Square root = L;  // the Gram matrix differs from its mean by more than n channels do
  const double shared = p.noise - 1 / static_cast<double>(p.y.width);
  if (shared > 0.01 * p.noise) {
    const Tensor<double> z = normal_columns(p.place, "kernel", i, tokens, static_cast<Index>(std::clamp(1 / shared, 1.0, 4096.0)), false);
    root = L * root_of(covariance(z.view(), z.view()));
  }
  const Tensor<double> y = times(root, normal_columns(p.place, "channels", i, tokens, n, false));
  Tensor<double> U(n, rows);
  gemm<double>(Trans::yes, Trans::no, 1.0, y.view(), draw.d.view(), 0.0, U.view());
  for (Index v = 0; v < rows; ++v) {
    const double lookup = std::sqrt(others[static_cast<std::size_t>(v)]);
    if (!(lookup > 0)) continue;  // the other use of a table's row
    const Tensor<double> g = normal_columns(p.place, "lookup", i * rows + v, 1, n, false);
    for (Index c = 0; c < n; ++c) U(c, v) += lookup * g(0, c);
  }
  const bool sgd = p.weight.rule == Update::Rule::sgd;
  for (Index j = 0; j < U.size(); ++j) {
    double& x = U.data()[j];
    x = sgd ? p.weight.times * x : x == 0 ? 0 : x / (std::abs(x) + p.weight.eps);
  }
  const double many = static_cast<double>(p.y.width) / static_cast<double>(n), by = std::sqrt(many);
  gemm<double>(Trans::no, Trans::no, 1.0, y.view(), U.view(), 0.0, draw.direct.view());
  for (Index j = 0; j < mean.size(); ++j) draw.direct.data()[j] = mean.data()[j] + by * (draw.direct.data()[j] - mean.data()[j] / many);
  const Tensor<double> z = normal_columns(p.place, "others", i, tokens, n, false);
  gemm<double>(Trans::no, Trans::no, by, z.view(), U.view(), 0.0, draw.other.view());
}

}  // namespace

LogitsMover move_logits(const LogitsDoor& p) {
  const Index tokens = p.y.K.tokens();
  const double n = static_cast<double>(p.y.width);
  auto s = std::make_shared<State>(State{.batch = &p.batch,
                                         .rows = Rows(p.batch, p.vocab, p.lookups),
                                         .draws = {},
                                         .after = p.after,
                                         .K = Square::of(p.y.K),
                                         .along = {},
                                         .a = std::vector<double>(static_cast<std::size_t>(tokens), 0.0),
                                         .w = n * p.law.second_moment(),
                                         .n = n,
                                         .weight = p.weight,
                                         .bias = p.bias});
  s->scored = static_cast<double>(std::ranges::count_if(p.batch.targets, [](auto id) { return id >= 0; }));
  const Index rows = s->rows.count();
  const auto count = std::max<Index>(2, static_cast<Index>(p.effort * 4));
  s->draws.resize(static_cast<std::size_t>(count));
  const Square L = root_of(s->K);
  LogitsMover out;
  out.pulls = Matrix(tokens, tokens);
  std::fill_n(out.pulls.data(), out.pulls.size(), 0.0);
  double direct = 0, vocab = 0, below = 0;
  for (const double w : s->rows.weight) vocab += w;
  const double share = 1 / static_cast<double>(count);
  std::vector<double> along(static_cast<std::size_t>(tokens), 0.0);
  for (Index i = 0; i < count; ++i) {
    Draw& draw = s->draws[static_cast<std::size_t>(i)];
    draw.z = times(std::sqrt(s->w) * L, normal_columns(p.place, "z", i, tokens, rows, true));
    for (Index t = 0; !p.z.own.empty() && t < tokens; ++t)
      draw.z(t, s->rows.place.at(p.batch.ids[static_cast<std::size_t>(t)])) += p.z.own_at(t);
    draw.d = Tensor<double>(tokens, rows);
    std::vector<double> value(static_cast<std::size_t>(rows)), slope(value.size()), prob(value.size()), others(value.size(), 0.0);
    for (Index t = 0; t < tokens; ++t) {
      for (std::size_t v = 0; v < value.size(); ++v) {
        value[v] = draw.z(t, static_cast<Index>(v));
        slope[v] = 1;
        for (const AnyOp& op : p.after) {
          slope[v] *= slope_of(op, value[v]);
          value[v] = value_of(op, value[v]);
        }
      }
      if (!is_scored(p.batch, t)) {
        std::fill_n(draw.d.view().row(t), rows, 0.0);
        continue;
      }
      s->loss += share * loss_of(*s, t, value.data(), prob.data()) / s->scored;
      prob[static_cast<std::size_t>(s->rows.place.at(p.batch.targets[static_cast<std::size_t>(t)]))] -= 1;
      for (std::size_t v = 0; v < value.size(); ++v) {
        draw.d(t, static_cast<Index>(v)) = prob[v] * slope[v] / s->scored;
        along[static_cast<std::size_t>(t)] +=
            share * s->rows.weight[v] * draw.d(t, static_cast<Index>(v)) * draw.z(t, static_cast<Index>(v));
      }
    }
    const Tensor<double> seen = times(L.transposed(), draw.d);
    const Tensor<double> Kd = times(L, seen);
    Tensor<double> f(tokens, rows);  // the mean of y U
    draw.bias.assign(static_cast<std::size_t>(rows), 0.0);
    for (Index v = 0; v < rows; ++v) {
      const auto j = static_cast<std::size_t>(v);
      double square = 0, pull = 0;
      for (Index t = 0; t < tokens; ++t) square += seen(t, v) * seen(t, v), pull += draw.d(t, v);
      double other = 0;
      if (const auto looked_up = p.lookups.find(s->rows.ids[j]); looked_up != p.lookups.end()) {
        other = looked_up->second;
        out.row_squares[looked_up->first] += share * n * square;
        for (Index t = 0; t < tokens; ++t) {
          for (Index u = 0; p.batch.ids[static_cast<std::size_t>(t)] == looked_up->first && u < tokens; ++u)
            out.pulls(t, u) += share * draw.d(u, v);
        }
      }
      const double weight = share * s->rows.weight[j], all = square + other;
      const bool sgd = p.weight.rule == Update::Rule::sgd;
      const SignNumbers k = sgd || !(all > 0) ? SignNumbers{0, 0} : sign_numbers(p.weight.eps / std::sqrt(all));
      const double by = !p.weight.moves() ? 0 : sgd ? p.weight.times * n : all > 0 ? n * k.first / std::sqrt(all) : 0;
      for (Index t = 0; t < tokens; ++t) {
        f(t, v) = by * Kd(t, v);
        const double own = Kd(t, v) * Kd(t, v), noise = std::max(p.noise, 1 / n);
        const double left =
            !p.weight.moves() || !(all > 0) ? 0
            : sgd                           ? by * by * noise * (s->K(t, t) * square + own)
                  : by * by * noise * (s->K(t, t) * square - own) + n * (k.second - k.first * k.first * square / all) * s->K(t, t);
        direct += weight * (f(t, v) * f(t, v) + std::max(left, 0.0)) / (vocab * static_cast<double>(tokens));
      }
      out.weight.decrease += weight * by * square;
      out.weight.norm2 += !p.weight.moves() ? 0 : sgd ? weight * p.weight.times * p.weight.times * n * all : weight * k.second * n;
      others[j] = other;
      if (p.weight.eps > 0 && !sgd) below += weight / vocab * (all > 0 ? std::erf(p.weight.eps / std::sqrt(2 * all)) : 1);
      if (p.bias.moves()) {
        draw.bias[j] = p.bias.rule == Update::Rule::sgd ? p.bias.times * pull : pull / (std::abs(pull) + p.bias.eps);
        out.bias.decrease += weight * draw.bias[j] * pull;
        out.bias.norm2 += weight * draw.bias[j] * draw.bias[j];
        out.bias.direct += weight / vocab * draw.bias[j] * draw.bias[j];
      }
    }
    draw.unmoved = normal_columns(p.place, "noise", i, tokens, rows, false);
    update_rows(p, L, draw, f, others, i);
  }
  out.weight.direct = direct;
  out.weight.below = p.weight.eps > 0 && p.weight.rule == Update::Rule::sign ? below : -1;
  for (Index t = 0; t < tokens; ++t) {
    const auto j = static_cast<std::size_t>(t);
    s->a[j] = s->K(t, t) > 0 ? along[j] / (n * s->K(t, t)) : 0;
  }
  out.loss = s->loss;
  out.run = [s](const WireChange& y, const Factor& factor) { return run(*s, y, factor); };
  return out;
}

}  // namespace stepzero
