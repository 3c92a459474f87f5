#pragma once
// The builder of a family's graph: build.cpp has the frame (embedding, blocks, head), build_parts.cpp what norms and matrices
// are made of, build_branches.cpp the two branches of a block.
#include <string>
#include <utility>
#include <vector>

#include "stepzero/models/family.hpp"
#include "stepzero/models/rope.hpp"

namespace stepzero {

class Builder {
 public:
  explicit Builder(const Architecture& a) : a_(a), names_(tensor_names(a)) {}

  Graph build();

 private:
  // ---- the frame
  void encode();  // the encoder of an encoder-decoder
  int stack(int x, Index layers);
  int embed();
  int embed_image();
  int positions(int x);
  int embedding_norm(int x);
  int add(const std::string& node, const char* kind, int x, int f, std::size_t branch);
  template <class Branch>
  int residual(const char* kind, const std::string& result, std::string_view before, std::string_view after, int x, std::size_t number,
               const Branch& branch);
  int serial(int x, int l);
  int parallel(int x, int l);
  void head(int x);

  // ---- parts
  int vector_param(const std::string& name, Index n, Role role, int layer);
  int bias_param(const std::string& stem, Index in, Index n, int layer);
  int matrix_param(const std::string& stem, Index in, Index out, Role role, int layer);
  int table_param(std::string_view stem, Index rows, Index width, Role role, Index zero_row = -1);
  std::string block_name(std::string_view stem, int l) const;  // of a tensor
  std::string at_block(int l) const;                           // of a node, with the stack's prefix
  int linear(const std::string& node, const std::string& stem, int x, Index in, Index out, bool bias, Role role, int layer);
  Storage storage() const { return names_.in_out ? Storage::in_out : Storage::out_in; }
  int projection(const std::string& node, std::string_view stem, int x, Index in, Index out, bool bias = false);
  template <class N>
  std::vector<ParamUse> norm_params(const std::string& stem, const char* kind, const N& op, Role role, int layer);
  template <class N>
  int norm_node(const std::string& node, const std::string& stem, int x, int layer, N op);
  int norm(const std::string& node, const std::string& stem, int x, int layer);
  int norm(const std::string& node, const std::string& stem, int x, int layer, Index width);
  int norm_before(const std::string& at, std::string_view stem, int x, int l);
  int norm_inside(const std::string& at, std::string_view beside, const char* name, int x, int l, Index width);
  int head_norm(const std::string& node, std::string_view stem, int x, Index heads, int l);
  int latent_norm(const std::string& node, const std::string& stem, int x, int l, Index width);
  int unit(const std::string& node, int x, Index fan_in);
  int drop(const std::string& node, int x);

  // ---- branches
  struct Heads {
    int q, k, v;
  };
  bool latent() const { return a_.key_value_rank > 0; }
  Heads project(const std::string& at, int x, int l);
  Heads project_cross(const std::string& at, int x, int l);
  Heads project_latent(const std::string& at, int x, int l);
  Heads clip(const std::string& at, Heads h);
  int turn(const std::string& node, int x, Index heads, const RopeTable& rope);
  int attention(int x, int l, bool cross = false);
  std::vector<ParamUse> relative_bias();
  int gated(const std::string& at, const std::string& gate_stem, const std::string& in_stem, int x, Index ffn, int l);
  int feed_forward(int x, int l);
  int experts(const std::string& at, int x, int l);
  std::pair<int, int> gate_and_up(const std::string& at, int x, int l);

  const Architecture& a_;
  TensorNames names_;
  Graph graph_;
  int token_ = -1;
  std::string prefix_;  // of the names of nodes: encoder. or decoder., empty where there is one stack
  bool causal_ = true;
  int memory_ = -1;    // what the encoder says, for those who cross to it
  int relative_ = -1;  // the stack's table of biases
};

}  // namespace stepzero
