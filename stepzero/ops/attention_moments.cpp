// Which of the two evaluations of attention's moment doors serves.
#include "stepzero/ops/attention_moments.hpp"

#include <algorithm>

#include "stepzero/ops/attention_turn.hpp"

namespace stepzero {

namespace {

// Heads that do not turn, or queries and keys by the same angles.
bool one_turn(const Attention& op, const Moment& q, const Moment& k) {
  if (q.rotary == nullptr || k.rotary == nullptr) return q.rotary == k.rotary;
  return !op.cross && !k.tail && q.before_heads && k.before_heads && turn_alike(*q.rotary, *k.rotary);
}

// The series is good where scores are small and nothing but their variance matters.
bool series_serves(const Attention& op, const Moment& q, const Moment& k) {
  if (op.softcap > 0 || !op.alibi.empty() || op.buckets > 0 || q.unit_heads || k.unit_heads || !one_turn(op, q, k)) return false;
  double top_q = 0, top_k = 0;
  for (Index t = 0; t < q.K.tokens(); ++t) {
    top_q = std::max(top_q, q.K(t, t));
    top_k = std::max(top_k, k.K(t, t));
  }
  const double variance = op.scale * op.scale * static_cast<double>(op.key_dim) * top_q * top_k;
  return variance < 0.2;
}

}  // namespace

Moment Attention::push(const PushDoor& p) const {
  if (p.draws.of_one()) return push_single(*this, p);
  const Moment &q = *p.x[0], &k = *p.x[1], &v = *p.x[2];
  Moment y = series_serves(*this, q, k) ? push_series(*this, p.batch, q, k, v) : push_sampled(*this, p);
  y.noise += v.noise;
  y.jitter = v.jitter;
  y.jitter.resize(std::max(v.jitter.size(), y.fresh.size()), 0.0);
  for (std::size_t t = 0; t < y.fresh.size(); ++t) y.jitter[t] += y.fresh[t];
  y.swing = v.swing;
  y.thins += v.thins;
  y.drift += v.drift;
  y.token_drift += v.token_drift;
  return y;
}

Pulled Attention::pull(const PullDoor& p) const {
  if (p.draws.of_one()) return pull_single(*this, p);
  Pulled up = series_serves(*this, *p.x[0], *p.x[1]) ? pull_series(*this, p) : pull_sampled(*this, p);
  up.dx[2].damp = p.dy.damp;  // the output grows with the values
  return up;
}

}  // namespace stepzero
