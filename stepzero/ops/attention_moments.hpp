#pragma once
// The two ways to evaluate the moment doors of attention; attention_moments.cpp holds the rule that picks one.
#include "stepzero/ops/attention.hpp"

namespace stepzero {

// A series in the score variance: attention_series.cpp
Moment push_series(const Attention& op, const Batch& batch, const Moment& q, const Moment& k, const Moment& v);
Pulled pull_series(const Attention& op, const PullDoor& p);

// Synthetic heads, drawn from the node's own stream: attention_sampler.cpp
Moment push_sampled(const Attention& op, const PushDoor& p);
Pulled pull_sampled(const Attention& op, const PullDoor& p);

// In one draw of a model: attention_single.cpp
Moment push_single(const Attention& op, const PushDoor& p);
Pulled pull_single(const Attention& op, const PullDoor& p);

}  // namespace stepzero
