#include "stepzero/solve/unknowns.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/core/text.hpp"
#include "stepzero/graph/role_names.hpp"
#include "stepzero/models/build.hpp"

namespace stepzero::solve {

namespace {

struct Multiplier {
  const char* name;
  double Architecture::* value;
  std::vector<double> Architecture::* each;  // where a scheme has given every branch its own
};

constexpr std::array multipliers =
    std::to_array<Multiplier>({{"residual_scale", &Architecture::residual_scale, &Architecture::residual_scales},
                               {"skip_scale", &Architecture::skip_scale, &Architecture::skip_scales},
                               {"embedding_scale", &Architecture::embedding_scale, nullptr},
                               {"attention_scale", &Architecture::attention_scale, nullptr},
                               {"logit_scale", &Architecture::logit_scale, nullptr}});

const Multiplier* find_multiplier(std::string_view name) {
  const auto* it = std::ranges::find(multipliers, name, [](const Multiplier& m) { return std::string_view(m.name); });
  return it == multipliers.end() ? nullptr : it;
}

std::optional<Role> role_named(std::string_view name) {
  for (int r = 0; r <= static_cast<int>(Role::router); ++r) {
    if (name == to_string(static_cast<Role>(r))) return static_cast<Role>(r);
  }
  return {};
}

Distribution times(Distribution d, double factor) {
  d.scale *= factor;
  if (d.structure != Distribution::Structure::none) d.diagonal *= factor;
  return d;
}

// The stack of every tensor, by the nodes that use it; what several use belongs to none.
std::vector<std::string> stacks_of(const Graph& graph) {
  std::vector<std::optional<std::string>> found(graph.params.size());
  for (const Node& node : graph.nodes) {
    for (const ParamUse& use : node.params) {
      auto& to = found[static_cast<std::size_t>(use.param)];
      const std::string stack = place_of(node.name).stack;
      to = !to || *to == stack ? stack : "";
    }
  }
  std::vector<std::string> out;
  for (const auto& f : found) out.push_back(f.value_or(""));
  return out;
}

}  // namespace

std::vector<std::string> multiplier_names() {
  std::vector<std::string> out;
  for (const Multiplier& m : multipliers) out.emplace_back(m.name);
  return out;
}

Expected<Unknowns> Unknowns::make(const Architecture& a, const Scheme& scheme, const std::vector<std::string>& free, bool asked, By by) {
  Unknowns out;
  out.a_ = a;
  out.scheme_ = &scheme;
  out.graph_ = std::make_shared<const Graph>(build_graph(a));
  out.stacks_ = stacks_of(*out.graph_);
  const Assignment laws(*out.graph_, a, scheme);
  for (std::size_t i = 0; i < out.graph_->params.size(); ++i) {
    const Param& p = out.graph_->params[i];
    auto& list = out.laws_.emplace_back();
    for (const Part& part : p.parts) list.push_back(laws.of({static_cast<int>(i), part.row0, part.col0, part.rows, part.cols}));
    if (list.empty()) list.push_back(laws.of({static_cast<int>(i), 0, 0, p.rows(), p.cols()}));
  }
  for (const std::string& text : free) {
    if (auto done = out.add(text, asked, by); !done) return std::unexpected(done.error());
  }
  if (out.list_.empty())
    return fail(fmt::format("scheme {}: {} are not there or begin at 0, and nothing else may move", scheme.name, fmt::join(free, ", ")),
                "what is 0 cannot be scaled: begin with another --scheme, or let something else move (--free)");
  return out;
}

Expected<void> Unknowns::add(const std::string& text, bool asked, By by) {
  if (find_multiplier(text) != nullptr) return add_field(text);
  std::map<std::string, std::vector<Unknown::Member>> groups;  // by stack
  for (std::size_t from = 0; from <= text.size();) {
    const auto plus = std::min(text.find('+', from), text.size());
    const std::string name = text.substr(from, plus - from);
    const auto role = role_named(name);
    if (!role) {
      std::vector<std::string> known = multiplier_names();
      for (int r = 0; r <= static_cast<int>(Role::router); ++r) known.emplace_back(to_string(static_cast<Role>(r)));
      return fail(fmt::format("--free {}: \"{}\" is no role and no multiplier", show(text), show(name)),
                  fmt::format("they are {}", fmt::join(known, ", ")));
    }
    for (std::size_t i = 0; i < graph_->params.size(); ++i) {
      const Param& p = graph_->params[i];
      if (p.frozen) continue;
      const auto take = [&](Role r, std::optional<std::size_t> part) {
        if (r == *role && law(i, part).std() > 0) groups[stacks_[i]].push_back({i, part, 1});
      };
      if (p.parts.empty()) take(p.role, {});
      for (std::size_t k = 0; k < p.parts.size(); ++k) take(p.parts[k].role, k);
    }
    from = plus + 1;
  }
  if (groups.empty() && asked)
    return fail(fmt::format("--free {}: {} has no such tensor, or all begin at 0", show(text), show(a_.name)),
                "what is 0 cannot be scaled: begin with another --scheme");
  for (const auto& [stack, members] : groups) add_group(stack.empty() ? text : stack + "." + text, members, by);
  return {};
}

Expected<void> Unknowns::add_field(const std::string& name) {
  const Multiplier& m = *find_multiplier(name);
  if (a_.graph) return fail(fmt::format("--free {}: {} is a model of its own, whose forward pass is its file's", name, show(a_.name)));
  if (m.each != nullptr && !(a_.*m.each).empty())
    return fail(fmt::format("--free {}: scheme {} has given every branch its own", name, scheme_->name));
  if (!(a_.*m.value > 0)) return fail(fmt::format("--free {}: it is 0 here", name));
  list_.push_back({.name = name, .field = name});
  return {};
}

void Unknowns::add_group(const std::string& name, const std::vector<Unknown::Member>& members, By by) {
  constexpr int most_knots = 5;
  int last = -1;
  for (const auto& m : members) last = std::max(last, graph_->params[m.param].layer);
  if (by == By::role || last < 1) {
    list_.push_back({.name = name, .members = members});
    return;
  }
  // layers 0 to `last`, knots at equal steps of ln(1 + layer), each a layer
  const double length = std::log1p(static_cast<double>(last));
  std::vector<int> knots;
  for (int k = 0; k < most_knots; ++k) {
    const int layer = static_cast<int>(std::lround(std::expm1(length * k / (most_knots - 1))));
    if (knots.empty() || layer > knots.back()) knots.push_back(layer);
  }
  for (std::size_t k = 0; k < knots.size(); ++k) {
    Unknown u{.name = fmt::format("{}, layer {}", name, knots[k])};
    for (Unknown::Member m : members) {
      const double x = std::log1p(std::max(graph_->params[m.param].layer, 0)), at = std::log1p(knots[k]);
      const double left = k == 0 ? -1 : std::log1p(knots[k - 1]), right = k + 1 == knots.size() ? -1 : std::log1p(knots[k + 1]);
      m.share = x <= at ? (left < 0 ? 1 : (x - left) / (at - left)) : (right < 0 ? 1 : (right - x) / (right - at));
      if (m.share > 1e-12) u.members.push_back(m);
    }
    list_.push_back(std::move(u));
  }
}

const Distribution& Unknowns::law(std::size_t param, std::optional<std::size_t> part) const { return laws_[param][part.value_or(0)]; }

std::vector<std::vector<double>> Unknowns::factors(const std::vector<double>& z) const {
  std::vector<std::vector<double>> out;
  for (const auto& laws : laws_) out.emplace_back(laws.size(), 0.0);
  for (std::size_t u = 0; u < list_.size(); ++u) {
    for (const Unknown::Member& m : list_[u].members) out[m.param][m.part.value_or(0)] += m.share * z[u];
  }
  for (auto& list : out) {
    for (double& x : list) x = std::exp(x);
  }
  return out;
}

double Unknowns::multiplier(const Unknown& u, double z) const { return a_.*(find_multiplier(u.field)->value) * std::exp(z); }

Expected<Point> Unknowns::at(const std::vector<double>& z) const {
  Point out{a_, graph_, {}};
  for (std::size_t u = 0; u < list_.size(); ++u) {
    if (!list_[u].field.empty()) out.architecture.*(find_multiplier(list_[u].field)->value) = multiplier(list_[u], z[u]);
  }
  if (std::ranges::any_of(list_, [](const Unknown& u) { return !u.field.empty(); })) {
    if (auto done = resolve(out.architecture); !done) return std::unexpected(done.error());
    out.graph = std::make_shared<const Graph>(build_graph(out.architecture));
  }
  const auto by = factors(z);
  out.laws = Assignment(*out.graph, out.architecture, [&](std::size_t i, const Part* part) {
    const auto k = part == nullptr ? std::size_t{0} : static_cast<std::size_t>(part - out.graph->params[i].parts.data());
    return times(laws_[i][k], by[i][k]);
  });
  return out;
}

Expected<SchemeFile> Unknowns::file(const std::vector<double>& z, const std::string& path) const {
  const bool of_file = scheme_->file != nullptr;
  SchemeFile out{.path = path, .summary = fmt::format("{}, solved", scheme_->name), .set = of_file ? scheme_->file->set : a_.changes};
  out.otherwise = of_file ? scheme_->file->otherwise : scheme_;
  for (std::size_t u = 0; u < list_.size(); ++u) {
    if (!list_[u].field.empty()) out.set.push_back(fmt::format("{}={}", list_[u].field, multiplier(list_[u], z[u])));
  }
  const auto by = factors(z);
  for (std::size_t i = 0; i < laws_.size(); ++i) {
    const Param& p = graph_->params[i];
    const bool moved = std::ranges::any_of(by[i], [](double x) { return x != 1; });
    if (!moved && !(of_file && scheme_->file->law_of(p) != nullptr) && !(of_file && scheme_->file->speaks_of_parts(p))) continue;
    for (std::size_t k = 0; k < laws_[i].size(); ++k) {
      const Distribution d = times(laws_[i][k], by[i][k]);
      if (d.structure == Distribution::Structure::diagonal || d.structure == Distribution::Structure::mimetic)
        return fail(fmt::format("scheme {}: {} is near an identity matrix, which no scheme's file can say", scheme_->name, show(p.name)),
                    "leave its role out of --free, or begin with another --scheme");
      LawRow row{.tensor = p.name, .law = d};
      if (!p.parts.empty()) row.part = p.parts[k].role;
      // blocks of one part have one law
      if (std::ranges::none_of(out.laws, [&](const LawRow& r) { return r.tensor == row.tensor && r.part == row.part; }))
        out.laws.push_back(std::move(row));
    }
  }
  return out;
}

}  // namespace stepzero::solve
