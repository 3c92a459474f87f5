#include "stepzero/ops/move/tables.hpp"

#include <cmath>
#include <numbers>

namespace stepzero {

namespace {

// eq: 1 where tokens share a row that has a gradient.
Direct direct_table(const Update& u, const Square& eq, const Square& G, double n, std::span<const double> more, TableMove* note) {
  const Index tokens = G.tokens();
  Direct out{Square(tokens), Square(tokens), 0, 0, {}};
  if (!u.moves()) return out;
  const Square pulls = between(eq, G);  // c
  std::vector<double> rows;             // tokens of each token's row
  double squares = 0, own = 0, count = 0;
  for (Index t = 0; t < tokens; ++t) {
    double same = 0;
    for (Index s = 0; s < tokens; ++s) same += eq(t, s);
    rows.push_back(same);
    if (same > 0) squares += pulls(t, t) / same;
    if (same > 0 && pulls(t, t) > 0) count += 1 / same;
  }
  note->eq = eq;
  note->update = u;
  if (u.rule == Update::Rule::sgd) {
    out.A = u.times * eq;
    if (!more.empty()) {
      out.R = Square::from(tokens, [&](Index t, Index s) { return u.times * u.times * eq(t, s) * more[static_cast<std::size_t>(t)] / n; });
    }
    out.norm2 = u.times * u.times * squares;
    out.decrease = u.times * squares;
    return out;
  }
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
      out.norm2 += numbers.second * n / rows[i];
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
  const auto d = std::make_shared<const Direct>(direct_table(p.updates[0], eq, G, n, p.more, &note));
  const Square size = d->size(G, n), K = Square::of(p.y.K);
  const double mean = size.trace() / static_cast<double>(G.tokens());
  Mover out;
  // of a table that is the head too, the head tells the norm
  out.params = {{p.more.empty() ? d->norm2 : 0, d->decrease, mean, p.more.empty() ? share_below(p.updates[0], eq, G, n) : -1}};
  out.tables = {note};
  out.run = [d, size, K, u = p.updates[0], mean](std::span<const WireChange* const>, const Factor& factor) {
    const double rate = factor.of(u), lost = rate * u.decay;
    WireChange y{.response = rate * d->A, .size = (rate * rate) * size, .stretch = Square(K.tokens())};
    if (lost != 0) {
      y.stretch += -lost * Square::one(K.tokens());
      y.size += (lost * lost) * K;
    }
    y.direct = y.size.trace() / static_cast<double>(K.tokens());
    (void)mean;
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
  const auto d = std::make_shared<const Direct>(direct_table(p.updates[0], eq, G, n, {}, &note));
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

}  // namespace stepzero
