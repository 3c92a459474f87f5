#include "stepzero/report/difference.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "stepzero/core/text.hpp"

namespace stepzero {

namespace {

using Kind = TensorDifference::Kind;

std::string describe(const TensorDifference& d) {
  const auto shape = [](const std::vector<std::uint64_t>& s) { return fmt::format("[{}]", fmt::join(s, ", ")); };
  switch (d.kind) {
    case Kind::only_left:
      return fmt::format("only on the left: {} {}", d.left_dtype, shape(d.left_shape));
    case Kind::only_right:
      return fmt::format("only on the right: {}", shape(d.right_shape));
    case Kind::shape:
      return fmt::format("shape {} and {}", shape(d.left_shape), shape(d.right_shape));
    case Kind::same_bits:
      return "same bits";
    case Kind::same_law:
      return fmt::format("other numbers of the same law: {} of {} differ, by {:.3g} at most; std {:.4g} and {:.4g}", d.different,
                         d.elements, d.largest, d.left.std, d.right.std);
    case Kind::other_law:
      return fmt::format(
          "another law: mean {:.4g} and {:.4g}, std {:.4g} and {:.4g}, {:.1f} standard errors apart; {} of {} numbers differ", d.left.mean,
          d.right.mean, d.left.std, d.right.std, d.z, d.different, d.elements);
  }
  return "?";
}

bool other_dtype(const TensorDifference& d) {
  const bool both = d.kind != Kind::only_left && d.kind != Kind::only_right;
  return both && !d.right_dtype.empty() && d.left_dtype != d.right_dtype;
}

const char* word_of(Kind kind) {
  switch (kind) {
    case Kind::only_left:
      return "only left";
    case Kind::only_right:
      return "only right";
    case Kind::shape:
      return "other shape";
    case Kind::same_bits:
      return "same bits";
    case Kind::same_law:
      return "same law";
    case Kind::other_law:
      return "other law";
  }
  return "?";
}

}  // namespace

bool is_same(const TensorDifference& d) { return d.kind == Kind::same_bits && !other_dtype(d); }

std::string difference_text(const std::vector<TensorDifference>& list, bool full) {
  std::string out;
  std::size_t same = 0;
  for (const TensorDifference& d : list) {
    same += is_same(d) ? 1 : 0;
    if (is_same(d) && !full) continue;
    out +=
        fmt::format("{}  {}{}\n", show(d.name), other_dtype(d) ? fmt::format("{} and {}; ", d.left_dtype, d.right_dtype) : "", describe(d));
  }
  return out + fmt::format("{} tensors: {} the same, {} not\n", list.size(), same, list.size() - same);
}

std::string difference_json(const std::vector<TensorDifference>& list) {
  using nlohmann::ordered_json;
  ordered_json tensors = ordered_json::array();
  for (const TensorDifference& d : list) {
    ordered_json row = {{"name", d.name}, {"outcome", word_of(d.kind)}, {"same", is_same(d)}};
    const auto side = [](const std::string& dtype, const std::vector<std::uint64_t>& shape, const SideStats& s, bool numbers) {
      ordered_json out = {{"dtype", dtype.empty() ? ordered_json(nullptr) : ordered_json(dtype)}, {"shape", shape}};
      if (numbers) out["mean"] = s.mean, out["std"] = s.std;
      return out;
    };
    const bool both = d.kind != Kind::only_left && d.kind != Kind::only_right, numbers = both && d.kind != Kind::shape;
    if (d.kind != Kind::only_right) row["left"] = side(d.left_dtype, d.left_shape, d.left, numbers);
    if (d.kind != Kind::only_left) row["right"] = side(d.right_dtype, d.right_shape, d.right, numbers);
    if (numbers) {
      row["elements"] = d.elements;
      row["different"] = d.different;
      row["largest"] = d.largest;
      row["z"] = d.z;
    }
    tensors.push_back(std::move(row));
  }
  const auto same = std::ranges::count_if(list, is_same);
  return ordered_json{{"schema", "stepzero.diff/1"}, {"same", same}, {"different", std::ssize(list) - same}, {"tensors", tensors}}.dump(2) +
         "\n";
}

}  // namespace stepzero
