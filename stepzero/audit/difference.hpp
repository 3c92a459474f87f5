#pragma once
// Two checkpoints, or a checkpoint and what a scheme would write: which tensors differ, and in what.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "stepzero/io/checkpoint_files.hpp"
#include "stepzero/schemes/scheme.hpp"

namespace stepzero {

// The right-hand side where it is not a file.
struct Drawn {
  const Graph& graph;
  const Assignment& assignment;
  std::uint64_t seed = 0;
};

struct SideStats {
  double mean = 0;
  double std = 0;
};

struct TensorDifference {
  std::string name;
  enum class Kind : std::uint8_t { only_left, only_right, shape, same_bits, same_law, other_law } kind = Kind::same_bits;
  std::vector<std::uint64_t> left_shape, right_shape;
  std::string left_dtype, right_dtype;  // right: empty where it is drawn, in the left one's
  SideStats left, right;
  double z = 0;  // the larger of the differences of mean and std, in standard errors
  std::uint64_t elements = 0;
  std::uint64_t different = 0;  // numbers that are not equal, the wider one rounded to the narrower one's type
  double largest = 0;           // difference of two numbers
};

constexpr double kSameLaw = 6;  // standard errors

using Told = std::function<void(double share)>;  // of the numbers of `left` that are done

Expected<std::vector<TensorDifference>> difference(const CheckpointFiles& left, const CheckpointFiles& right, const Told& tell = {});
Expected<std::vector<TensorDifference>> difference(const CheckpointFiles& left, const Drawn& right, const Told& tell = {});

}  // namespace stepzero
