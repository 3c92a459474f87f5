// Chooses how attention's moments are evaluated: by the series, or by sampled heads.
#include "stepzero/ops/attention_moments.hpp"

#include <algorithm>

#include "stepzero/ops/attention_turn.hpp"
#include "stepzero/ops/heads.hpp"

namespace stepzero {

namespace {

// Heads that do not turn, or queries and keys by the same angles.
bool one_turn(const Attention& op, const HeadNote& q, const HeadNote& k) {
  if (q.rotary == nullptr || k.rotary == nullptr) return q.rotary == k.rotary;
  return !op.cross && !k.tail && turn_alike(*q.rotary, *k.rotary);
}

// The series is good where scores are small and nothing but their variance matters.
bool series_serves(const Attention& op, const DownWire& q, const DownWire& k) {
  const HeadNote of_q = head_note(q), of_k = head_note(k);
  if (op.softcap > 0 || !op.alibi.empty() || op.buckets > 0 || op.sinks || op.chunk > 0 || of_q.unit || of_k.unit ||
      !one_turn(op, of_q, of_k))
    return false;
  double top_q = 0, top_k = 0;
  for (Index t = 0; t < q.K.tokens(); ++t) {
    top_q = std::max(top_q, q.K(t, t));
    top_k = std::max(top_k, k.K(t, t));
  }
  const double variance = op.scale * op.scale * static_cast<double>(op.key_dim) * top_q * top_k;
  return variance < 0.2;
}

}  // namespace

DownWire Attention::push(const PushDoor& p) const {
  const DownWire &q = *p.x[0], &k = *p.x[1], &v = *p.x[2];
  DownWire y = series_serves(*this, q, k) ? push_series(*this, p.batch, q, k, v) : push_sampled(*this, p);
  y.f.noise += v.f.noise;
  y.f.jitter = v.f.jitter;
  y.f.jitter.resize(std::max(v.f.jitter.size(), y.f.fresh.size()), 0.0);
  for (std::size_t t = 0; t < y.f.fresh.size(); ++t) y.f.jitter[t] += y.f.fresh[t];
  y.f.swing = v.f.swing;
  y.f.thins += v.f.thins;
  y.f.drift += v.f.drift;
  y.f.token_drift += v.f.token_drift;
  return y;
}

Pulled Attention::pull(const PullDoor& p) const {
  Pulled up = series_serves(*this, *p.x[0], *p.x[1]) ? pull_series(*this, p) : pull_sampled(*this, p);
  for (UpWire& d : up.dx) d.r.stretch += p.dy.r.stretch;
  up.dx[2].r.damp = p.dy.r.damp;  // the output grows with the values
  return up;
}

}  // namespace stepzero
