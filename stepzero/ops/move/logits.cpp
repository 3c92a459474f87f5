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

  Rows(const Batch& batch, Index vocab) {
    const auto add = [&](std::int32_t id) {
      if (id < 0 || place.contains(id)) return;
      place[id] = std::ssize(ids);
      ids.push_back(id);
      weight.push_back(1);
    };
    for (const auto id : batch.ids) add(id);
    for (const auto id : batch.targets) add(id);
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
  Tensor<double> z, d, f, spare, noise;  // logits, D_z, f(delta), variance of what f leaves, normals
  std::vector<double> bias;
};

struct State {
  const Batch* batch;
  Rows rows;
  std::vector<Draw> draws;
  std::vector<AnyOp> after;
  Square K, along;  // along: diag(a)
  std::vector<double> a;
  double w, n, second = 1, loss = 0, scored = 1;
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

std::vector<WireChange> run(const State& s, const WireChange& y, double factor) {
  const Index tokens = s.K.tokens(), rows = s.rows.count();
  const double rate = factor * s.weight.rate, rate_b = factor * s.bias.rate, kept = 1 - rate * s.weight.decay;
  const Square apart = y.size - between(y.stretch, s.K);
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
    Tensor<double> dz = times(turned, draw.z);
    gemm<double>(Trans::no, Trans::no, -s.w, y.response.view(), draw.d.view(), 1.0, dz.view());
    gemm<double>(Trans::no, Trans::no, -rate, y.stretch.view(), draw.f.view(), 1.0, dz.view());
    std::vector<double> now(static_cast<std::size_t>(rows));
    for (const double sign : {1.0, -1.0}) {
      for (Index t = 0; t < tokens; ++t) {
        const double carried = s.w * std::max(apart(t, t), 0.0) + rate * rate * s.second * s.n * std::max(apart(t, t), 0.0);
        for (Index v = 0; v < rows; ++v) {
          const auto j = static_cast<std::size_t>(v);
          const double noise = sign * std::sqrt(carried + rate * rate * draw.spare(t, v)) * draw.noise(t, v);
          double was = draw.z(t, v), is = kept * (was + dz(t, v) - rate * draw.f(t, v) + noise) - rate_b * draw.bias[j];
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

LogitsMover move_logits(const LogitsDoor& p) {
  const Index tokens = p.batch.tokens();
  const double n = static_cast<double>(p.y.width);
  auto s = std::make_shared<State>(State{.batch = &p.batch,
                                         .rows = Rows(p.batch, p.vocab),
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
  const auto count = std::max<Index>(2, static_cast<Index>(p.effort * 8));
  s->draws.resize(static_cast<std::size_t>(count));
  const Square L = root_of(s->K);
  LogitsMover out;
  out.row_squares.assign(static_cast<std::size_t>(tokens), 0.0);
  out.pulls = Matrix(tokens, tokens);
  std::fill_n(out.pulls.data(), out.pulls.size(), 0.0);
  double direct = 0, vocab = 0, below = 0, second = 0;
  for (const double w : s->rows.weight) vocab += w;
  const double share = 1 / static_cast<double>(count);
  std::vector<double> along(static_cast<std::size_t>(tokens), 0.0);
  for (Index i = 0; i < count; ++i) {
    Draw& draw = s->draws[static_cast<std::size_t>(i)];
    draw.z = times(std::sqrt(s->w) * L, normal_columns(p.place, "z", i, tokens, rows, true));
    for (Index t = 0; t < tokens; ++t) draw.z(t, s->rows.place.at(p.batch.ids[static_cast<std::size_t>(t)])) += p.z.own_at(t);
    draw.d = Tensor<double>(tokens, rows);
    std::vector<double> f(static_cast<std::size_t>(rows)), slope(f.size()), prob(f.size());
    for (Index t = 0; t < tokens; ++t) {
      for (std::size_t v = 0; v < f.size(); ++v) {
        f[v] = draw.z(t, static_cast<Index>(v));
        slope[v] = 1;
        for (const AnyOp& op : p.after) {
          slope[v] *= slope_of(op, f[v]);
          f[v] = value_of(op, f[v]);
        }
      }
      if (!is_scored(p.batch, t)) {
        std::fill_n(draw.d.view().row(t), rows, 0.0);
        continue;
      }
      s->loss += share * loss_of(*s, t, f.data(), prob.data()) / s->scored;
      prob[static_cast<std::size_t>(s->rows.place.at(p.batch.targets[static_cast<std::size_t>(t)]))] -= 1;
      for (std::size_t v = 0; v < f.size(); ++v) {
        draw.d(t, static_cast<Index>(v)) = prob[v] * slope[v] / s->scored;
        along[static_cast<std::size_t>(t)] +=
            share * s->rows.weight[v] * draw.d(t, static_cast<Index>(v)) * draw.z(t, static_cast<Index>(v));
      }
    }
    const Tensor<double> seen = times(L.transposed(), draw.d);
    draw.f = Tensor<double>(tokens, rows);
    draw.spare = Tensor<double>(tokens, rows);
    Tensor<double> Kd = times(L, seen);
    draw.bias.assign(static_cast<std::size_t>(rows), 0.0);
    for (Index v = 0; v < rows; ++v) {
      const auto j = static_cast<std::size_t>(v);
      double square = 0, pull = 0;
      for (Index t = 0; t < tokens; ++t) square += seen(t, v) * seen(t, v), pull += draw.d(t, v);
      double other = 0;
      if (!p.rows.empty()) {
        for (Index t = 0; t < tokens; ++t) {
          if (p.batch.ids[static_cast<std::size_t>(t)] == s->rows.ids[j]) other = p.rows[static_cast<std::size_t>(t)];
        }
        for (Index t = 0; t < tokens; ++t) {
          if (p.batch.ids[static_cast<std::size_t>(t)] != s->rows.ids[j]) continue;
          out.row_squares[static_cast<std::size_t>(t)] += share * n * square;
          for (Index u = 0; u < tokens; ++u) out.pulls(t, u) += share * draw.d(u, v);
        }
      }
      const double weight = share * s->rows.weight[j], all = square + other;
      const bool sgd = p.weight.rule == Update::Rule::sgd;
      const SignNumbers k = sgd || !(all > 0) ? SignNumbers{0, 0} : sign_numbers(p.weight.eps / std::sqrt(all));
      const double by = !p.weight.moves() ? 0 : sgd ? p.weight.times * n : all > 0 ? n * k.first / std::sqrt(all) : 0;
      for (Index t = 0; t < tokens; ++t) {
        draw.f(t, v) = by * Kd(t, v);
        const double own = Kd(t, v) * Kd(t, v), noise = std::max(p.noise, 1 / n);
        const double left =
            !p.weight.moves() || !(all > 0) ? 0
            : sgd                           ? by * by * noise * (s->K(t, t) * square + own)
                  : by * by * noise * (s->K(t, t) * square - own) + n * (k.second - k.first * k.first * square / all) * s->K(t, t);
        draw.spare(t, v) = std::max(left, 0.0);
        direct += weight * (draw.f(t, v) * draw.f(t, v) + draw.spare(t, v)) / (vocab * static_cast<double>(tokens));
      }
      out.weight.decrease += weight * by * square;
      out.weight.norm2 += !p.weight.moves() ? 0 : sgd ? weight * p.weight.times * p.weight.times * n * all : weight * k.second * n;
      second += weight * (sgd ? p.weight.times * p.weight.times * square : k.second) / vocab;
      if (p.weight.eps > 0 && !sgd) below += weight / vocab * (all > 0 ? std::erf(p.weight.eps / std::sqrt(2 * all)) : 1);
      if (p.bias.moves()) {
        draw.bias[j] = p.bias.rule == Update::Rule::sgd ? p.bias.times * pull : pull / (std::abs(pull) + p.bias.eps);
        out.bias.decrease += weight * draw.bias[j] * pull;
        out.bias.norm2 += weight * draw.bias[j] * draw.bias[j];
        out.bias.direct += weight / vocab * draw.bias[j] * draw.bias[j];
      }
    }
    draw.noise = normal_columns(p.place, "noise", i, tokens, rows, false);
  }
  s->second = second;
  out.weight.direct = direct;
  out.weight.below = p.weight.eps > 0 && p.weight.rule == Update::Rule::sign ? below : -1;
  for (Index t = 0; t < tokens; ++t) {
    const auto j = static_cast<std::size_t>(t);
    s->a[j] = s->K(t, t) > 0 ? along[j] / (n * s->K(t, t)) : 0;
  }
  out.loss = s->loss;
  out.run = [s](const WireChange& y, double factor) { return run(*s, y, factor); };
  return out;
}

}  // namespace stepzero
