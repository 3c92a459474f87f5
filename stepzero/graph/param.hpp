#pragma once
// The tensors of a checkpoint, as schemes, readers and writers of weights see them: no op is needed to look at one.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "stepzero/core/random.hpp"
#include "stepzero/core/view.hpp"

namespace stepzero {

// What a scheme is told about a parameter.
enum class Role : std::uint8_t {
  token_embedding,
  position_embedding,
  query,
  key,
  value,
  query_key_value,
  attention_out,
  ffn_in,
  ffn_gate,
  ffn_out,
  head,
  projection,  // a matrix outside the blocks
  router,      // scores of experts
  lora_down,   // A of an adapter
  lora_up,     // B
  gain,
  bias,
  branch_gain,
};

// A block of a tensor that several projections share: what a scheme that tells them apart is asked about.
struct Part {
  Role role = Role::query;
  Index row0 = 0;
  Index col0 = 0;
  Index rows = 0;
  Index cols = 0;
  Index fan_out = 1;  // of the whole projection, which may have several blocks
};

// A tensor of the checkpoint.
struct Param {
  std::string name;          // as in the safetensors file
  std::vector<Index> shape;  // as stored
  Role role = Role::gain;
  int layer = -1;  // block it belongs to, -1 outside the blocks
  Index fan_in = 1;
  Index fan_out = 1;
  double neutral = 1;                    // a gain's value that changes nothing: 0 where the norm adds 1 to it
  Index zero_row = -1;                   // the row of padding, which stays zero; -1: none
  std::vector<Part> parts = {};          // none: the tensor is one matrix
  bool in_out = false;                   // a matrix stored (in, out)
  bool conv = false;                     // the kernel of a convolution: a row for each channel it makes
  bool frozen = false;                   // not trained: a pass makes no gradient of it, and the global norm leaves it out
  std::optional<Distribution> law = {};  // drawn so: an adapter's whatever the scheme says; or what the model's own file says

  // as a matrix: a vector is one row, of more dimensions the last are the columns
  [[nodiscard]] Index rows() const { return product(0, row_dimensions()); }
  [[nodiscard]] Index cols() const { return product(row_dimensions(), shape.size()); }
  [[nodiscard]] Index size() const { return product(0, shape.size()); }
  [[nodiscard]] bool is_adapter() const { return role == Role::lora_down || role == Role::lora_up; }

 private:
  [[nodiscard]] std::size_t row_dimensions() const { return conv ? 1 : std::max<std::size_t>(shape.size(), 1) - 1; }
  [[nodiscard]] Index product(std::size_t begin, std::size_t end) const {
    const auto at = [&](std::size_t i) { return shape.begin() + static_cast<std::ptrdiff_t>(i); };
    return std::accumulate(at(begin), at(end), Index{1}, std::multiplies<>());
  }
};

// The block of a tensor that one op uses: all of it, or for instance the query third of a fused projection.
// Two uses of one tensor are either the same block (a tied head) or disjoint.
struct ParamUse {
  int param = 0;
  Index row0 = 0;
  Index col0 = 0;
  Index rows = 0;
  Index cols = 0;

  friend bool operator==(const ParamUse&, const ParamUse&) = default;
};

}  // namespace stepzero
