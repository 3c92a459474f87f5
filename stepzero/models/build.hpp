#pragma once
// From an architecture description to the graph of ops.
//
// Node names: embed.*, stream.0 (what enters the first block), blocks.l.attn.{norm,q,k,v,q_clip,k_clip,v_clip,q_norm,k_norm,
// q_rot,k_rot,mix,out},
// blocks.l.mid, blocks.l.ffn.{norm,in,gate,act,product,out}, stream.l+1 (what leaves block l), final.norm, head.*, logits, loss.
// With experts blocks.l.ffn.router, and beside shared ones blocks.l.ffn.{experts,shared.*}; latent attention has
// blocks.l.attn.{q_latent,q_latent_norm,kv_latent,kv_latent_norm,k_own,k_shared}; an encoder-decoder the prefixes encoder. and
// decoder. and decoder.blocks.l.{cross.*,crossed}. Convolutional networks: build_cnn.hpp.
#include "stepzero/graph/graph.hpp"
#include "stepzero/models/architecture.hpp"

namespace stepzero {

// `a` has been resolved.
Graph build_graph(const Architecture& a);

}  // namespace stepzero
