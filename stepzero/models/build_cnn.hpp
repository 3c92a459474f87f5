#pragma once
// Convolutional networks: their graph, and whether a description of one fits together.
//
// Node names. Plain stages: stream.0 (the pixels), blocks.l.{conv,norm,act}, stream.l+1 (what leaves the pooling of stage l), flatten.
// Residual ones: pixels, stream.0 (the first convolution), blocks.l.{norm1,act1,conv1,norm2,act2,conv2,shortcut}, stream.l+1,
// final.{norm,act,pool}. Then matrices, blocks.l.{fc} and stream.l+1, and logits, loss.
#include "stepzero/graph/graph.hpp"
#include "stepzero/models/architecture.hpp"

namespace stepzero {

Expected<void> resolve_cnn(Architecture& a);

// `a` has been resolved.
Graph build_cnn(const Architecture& a);

}  // namespace stepzero
