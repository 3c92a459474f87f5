// The model at every point of a coordinate check, with what it is drawn and updated by there.
#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/api/coord.hpp"
#include "stepzero/api/setup.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/models/own_file.hpp"

namespace stepzero {

namespace {

Index scaled(Index size, Index to, Index from) { return std::max<Index>(1, (size * to + from / 2) / from); }

Expected<std::vector<std::string>> at_width(const Architecture& a, Index width, const CoordRequest& r) {
  if (!a.stages.empty()) {  // the width is the channels of the first stage
    std::vector<Index> stages = a.stages, dense = a.dense;
    for (Index& n : stages) n = scaled(n, width, a.stages[0]);
    for (Index& n : dense) n = scaled(n, width, a.stages[0]);
    std::vector<std::string> set = {fmt::format("stages={}", fmt::join(stages, ","))};
    if (!dense.empty()) set.push_back(fmt::format("dense={}", fmt::join(dense, ",")));
    return set;
  }
  std::vector<std::string> set = {fmt::format("width={}", width)};
  const auto size = [&](const char* field, Index now) {
    const bool known = !a.own || !own_size(*a.own, field).empty();
    if (now > 0 && known) set.push_back(fmt::format("{}={}", field, now));
  };
  const Index heads = r.grow_heads ? a.heads : scaled(a.heads, width, a.width);
  if (r.grow_heads ? width % a.heads != 0
                   : width * a.heads % a.width != 0 || heads * a.head_dim * a.width != a.heads * a.head_dim * width) {
    return fail(r.grow_heads ? fmt::format("a width of {} is not shared by {} heads", width, a.heads)
                             : fmt::format("a width of {} does not hold whole heads of {}", width, a.head_dim),
                "widths are multiples of the head's size; --grow-heads keeps the number of heads instead");
  }
  size("heads", heads);
  size("head_dim", r.grow_heads ? scaled(a.head_dim, width, a.width) : a.head_dim);
  size("kv_heads", r.keep_keys || r.grow_heads ? a.kv_heads : scaled(a.kv_heads, width, a.width));
  size("ffn", scaled(a.ffn, width, a.width));
  if (a.experts > 0) size("expert_ffn", scaled(a.expert_ffn, width, a.width));
  if (a.embedding_width > 0) size("embedding_width", scaled(a.embedding_width, width, a.width));
  return set;
}

Expected<ModelRequest> at_point(const ModelRequest& model, const CoordRequest& r, const Architecture& a, Index value) {
  ModelRequest out = model;
  if (!r.depths.empty()) {
    out.set.push_back(fmt::format("layers={}", value));
    return out;
  }
  auto set = at_width(a, value, r);
  if (!set) return std::unexpected(set.error());
  out.set.insert(out.set.end(), set->begin(), set->end());
  return out;
}

Expected<CoordPoint> as_given(double value, const ModelRequest& model, const std::string& rates) {
  const auto scheme = find_scheme(model.scheme);
  if (!scheme) return std::unexpected(scheme.error());
  auto a = describe_model(model.model, model.set, **scheme, model.like);
  if (!a) return std::unexpected(a.error());
  auto graph = graph_of(*a, {});
  if (!graph) return std::unexpected(graph.error());
  auto table = rates.empty() ? Expected<RateTable>(RateTable()) : read_rates(rates, graph->params);
  if (!table) return std::unexpected(table.error());
  return CoordPoint{value, std::move(*a), std::move(*graph), *scheme, std::move(*table)};
}

// "256=file.json"
Expected<std::vector<std::pair<Index, std::string>>> files_of(const std::vector<std::string>& at) {
  std::vector<std::pair<Index, std::string>> out;
  for (const std::string& text : at) {
    Index value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end == text.data() + text.size() || *end != '=')
      return fail(fmt::format("--at \"{}\" is not a width or depth and a file", show(text)), "for example --at 256=carried.json");
    out.emplace_back(value, text.substr(static_cast<std::size_t>(end - text.data()) + 1));
  }
  return out;
}

Expected<void> check(const CoordRequest& r) {
  const auto& axis = r.widths.empty() ? r.depths : r.widths;
  if (r.widths.empty() == r.depths.empty())
    return fail("a coordinate check goes along widths or along depths", "--widths 128,256,512 or --depths 2,4,8");
  if (axis.front() < 1 || r.base < 0)
    return fail(fmt::format("a model has no width or depth of {}", axis.front() < 1 ? axis.front() : r.base));
  if (axis.size() < 2 || !std::ranges::is_sorted(axis) || axis.front() == axis.back())
    return fail("a slope needs two points or more, in rising order", "for example --widths 128,256,512");
  if (r.predicted && r.steps > 1) return fail("theory knows the first step alone", "--steps 1");
  if (r.steps < 1 || r.seeds < 1) return fail("a check takes a step and a draw at least");
  if (r.parametrization == "none" && (r.zero_output || r.zero_query))
    return fail("--zero-output and --zero-query are carried by a parametrization");
  return {};
}

}  // namespace

Expected<std::vector<CoordPoint>> coord_points(const ModelRequest& model, const CoordRequest& r) {
  if (auto done = check(r); !done) return std::unexpected(done.error());
  const auto files = files_of(r.at);
  if (!files) return std::unexpected(files.error());
  const auto a = find_architecture(model.model, model.set, model.like);
  if (!a) return std::unexpected(a.error());
  const auto& axis = r.widths.empty() ? r.depths : r.widths;
  const auto base = at_point(model, r, *a, r.base > 0 ? r.base : axis.front());
  if (!base) return std::unexpected(base.error());
  std::vector<CoordPoint> points;
  for (const Index value : axis) {
    const auto there = at_point(model, r, *a, value);
    if (!there) return std::unexpected(there.error());
    const auto file = std::ranges::find(*files, value, &std::pair<Index, std::string>::first);
    const auto number = static_cast<double>(value);
    if (r.parametrization == "none" || file != files->end()) {
      ModelRequest given = *there;
      if (file != files->end()) given.scheme = file->second;
      auto point = as_given(number, given, file != files->end() ? file->second : "");
      if (!point) return std::unexpected(point.error());
      points.push_back(std::move(*point));
      continue;
    }
    const auto subject = run_transfer(
        *base, *there,
        {.parametrization = r.parametrization, .optimizer = r.optimizer, .zero_output = r.zero_output, .zero_query = r.zero_query});
    if (!subject) return std::unexpected(subject.error());
    auto carried = target_of(*subject);
    if (!carried) return std::unexpected(carried.error());
    auto graph = graph_of(carried->architecture, {});
    if (!graph) return std::unexpected(graph.error());
    points.push_back({number, std::move(carried->architecture), std::move(*graph), carried->scheme, std::move(carried->rates)});
  }
  return points;
}

}  // namespace stepzero
