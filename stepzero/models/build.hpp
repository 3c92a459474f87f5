#pragma once
// From an architecture description to the graph of ops.
//
// Node names: embed.*, stream.0 (what enters the first block), blocks.l.attn.{norm,q,k,v,q_clip,k_clip,v_clip,q_norm,k_norm,
// q_rot,k_rot,mix,out},
// blocks.l.mid, blocks.l.ffn.{norm,in,gate,act,product,out}, stream.l+1 (what leaves block l), final.norm, head.*, logits, loss.
#include "stepzero/graph/graph.hpp"
#include "stepzero/models/architecture.hpp"

namespace stepzero {

// `a` has been resolved. A family whose forward pass is not there yet has parameters and no nodes.
Graph build_graph(const Architecture& a);

// The same for those who run it: an error where there is no forward pass.
Expected<Graph> build_running_graph(const Architecture& a);

}  // namespace stepzero
