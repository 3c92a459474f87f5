#pragma once
// Predictions of sequences whose kernels would be too large: made at shorter lengths, and carried on to the whole one.
#include "stepzero/theory/predict.hpp"

namespace stepzero {

// predict() where a sequence has at most options.longest tokens, n. Else the first n/8, n/4, n/2 and n tokens of each sequence are
// predicted. With every doubling a number M (its logarithm, where it is a size; of a token's gradient times the length) moves by
// a step, and the steps by a ratio r:
//
//     M(2^x n) = M(n) + d (r + r^2 + ... + r^x),  d = M(n) - M(n/2),  r = d / (M(n/2) - M(n/4)), held between 0 and 1
//
// exact for constants, powers and logarithms of the length and for what approaches a limit like a power. Signal::extension tells
// what the same step from the lengths below n missed at n. An error where kernels do not fit into memory.
Expected<Signal> predict_any(const Graph& graph, const Architecture& a, const Batch& batch, const Scheme& scheme,
                             const PredictOptions& options = {});

}  // namespace stepzero
