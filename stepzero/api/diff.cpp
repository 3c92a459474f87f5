#include <algorithm>

#include "stepzero/api/guarded.hpp"
#include "stepzero/api/setup.hpp"
#include "stepzero/report/difference.hpp"

namespace stepzero {

namespace {

// A seed as init notes it in a file.
std::uint64_t seed_of(const std::string& text) {
  const bool number = !text.empty() && text.size() < 20 && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  return number ? std::stoull(text) : 0;
}

Expected<std::vector<TensorDifference>> differences(const DiffRequest& r, const Told& tell) {
  const auto left = CheckpointFiles::open(r.left);
  if (!left) return std::unexpected(left.error());
  if (is_checkpoint(r.right)) {
    const auto right = CheckpointFiles::open(r.right);
    if (!right) return std::unexpected(right.error());
    return difference(*left, *right, tell);
  }
  // what init wrote into the file about itself
  const std::string name = r.scheme.empty() ? left->note("stepzero.scheme") : r.scheme;
  const auto scheme = find_scheme(name.empty() ? "hf" : name);
  if (!scheme) return std::unexpected(scheme.error());
  const auto a = describe_model(r.right, r.set, **scheme);
  if (!a) return std::unexpected(a.error());
  const auto graph = graph_of(*a, {});
  if (!graph) return std::unexpected(graph.error());
  const Assignment assignment(*graph, *a, **scheme);
  return difference(*left, Drawn{*graph, assignment, r.seed ? *r.seed : seed_of(left->note("stepzero.seed"))}, tell);
}

}  // namespace

Expected<DiffResult> diff(const DiffRequest& request, const Watch& watch) {
  return guarded(watch, [&]() -> Expected<DiffResult> {
    Teller tell(watch, "comparing");
    auto list = differences(request, [&](double share) { tell(share); });
    if (!list) return std::unexpected(list.error());
    return DiffResult(std::make_shared<const std::vector<TensorDifference>>(std::move(*list)));
  });
}

bool DiffResult::same() const { return std::ranges::all_of(*list_, is_same); }
std::string DiffResult::json() const { return difference_json(*list_); }
std::string DiffResult::text() const { return difference_text(*list_, false); }

}  // namespace stepzero
