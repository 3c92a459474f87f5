#pragma once
// The one list of ops. To add an op, add it here; the laws, the derivation check and the walks then know it.
#include <variant>

#include "stepzero/ops/attention.hpp"
#include "stepzero/ops/average_pool.hpp"
#include "stepzero/ops/batch_norm.hpp"
#include "stepzero/ops/concat.hpp"
#include "stepzero/ops/conv.hpp"
#include "stepzero/ops/cross_entropy.hpp"
#include "stepzero/ops/dropout.hpp"
#include "stepzero/ops/elementwise.hpp"
#include "stepzero/ops/embedding.hpp"
#include "stepzero/ops/experts.hpp"
#include "stepzero/ops/features.hpp"
#include "stepzero/ops/flatten.hpp"
#include "stepzero/ops/gain.hpp"
#include "stepzero/ops/join.hpp"
#include "stepzero/ops/linear.hpp"
#include "stepzero/ops/lora.hpp"
#include "stepzero/ops/max_pool.hpp"
#include "stepzero/ops/multiply.hpp"
#include "stepzero/ops/norm.hpp"
#include "stepzero/ops/patch.hpp"
#include "stepzero/ops/pixels.hpp"
#include "stepzero/ops/pool.hpp"
#include "stepzero/ops/position.hpp"
#include "stepzero/ops/probe.hpp"
#include "stepzero/ops/repeat.hpp"
#include "stepzero/ops/residual.hpp"
#include "stepzero/ops/rotary.hpp"
#include "stepzero/ops/scale.hpp"
#include "stepzero/ops/scan.hpp"
#include "stepzero/ops/shift.hpp"
#include "stepzero/ops/take.hpp"
#include "stepzero/ops/temperature.hpp"
#include "stepzero/ops/time_conv.hpp"
#include "stepzero/ops/xielu.hpp"

namespace stepzero {

template <class... Phi>
using OpList = std::variant<TokenEmbedding, LearnedPosition, SinusoidalPosition, Linear, LoraLinear, LayerNorm, RmsNorm, Multiply, Rotary,
                            Attention, Dropout, Residual, Scale, Gain, Softcap, Clip, Join, Repeat, Experts, PatchEmbedding, Pixels, Conv,
                            AveragePool, MaxPool, BatchNorm, Flatten, TokenPool, Probe, Features, TimeConv, Temperature, Shift, Concat,
                            Take, Scan, XIelu, CrossEntropy, Elementwise<Phi>...>;

using AnyOp = PhiList<OpList>;

}  // namespace stepzero
