#pragma once
// Two ways to evaluate the moment doors of attention; attention_moments.cpp picks one. For one draw of a model: attention_single.cpp.
#include "stepzero/ops/attention.hpp"

namespace stepzero {

// A series in the score variance: attention_series.cpp
DownWire push_series(const Attention& op, const Batch& batch, const DownWire& q, const DownWire& k, const DownWire& v);
Pulled pull_series(const Attention& op, const PullDoor& p);

// Synthetic heads, drawn from the node's own stream: attention_sampler.cpp
DownWire push_sampled(const Attention& op, const PushDoor& p);
Pulled pull_sampled(const Attention& op, const PullDoor& p);

// E[A], (T, T), from some drawn heads: what two maps of scores over the same values have in common.
Matrix mean_weights(const Attention& op, const PushDoor& p);

}  // namespace stepzero
