#include "stepzero/schemes/scheme_file.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>

#include <fmt/format.h>
#include <fnmatch.h>
#include <nlohmann/json.hpp>

#include "stepzero/core/lock.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/graph/graph.hpp"
#include "stepzero/graph/role_names.hpp"
#include "stepzero/io/file.hpp"
#include "stepzero/io/json.hpp"

namespace stepzero {

namespace {

using nlohmann::json;

constexpr const char* form =
    R"({"schema": "stepzero.scheme/1", "otherwise": "hf", "set": [], "tensors": [{"tensor": "*.weight", "law": "normal", "std": 0.02}]})";

std::optional<Role> role_named(std::string_view name) {
  for (int r = 0; r <= static_cast<int>(Role::branch_gain); ++r) {
    if (name == to_string(static_cast<Role>(r))) return static_cast<Role>(r);
  }
  return {};
}

class LawReader {
 public:
  LawReader(const json& row, std::string where) : row_(row), where_(std::move(where)) {}

  [[nodiscard]] bool has_law() const { return row_.is_object() && row_.contains("law"); }

  Expected<LawRow> read() const {
    LawRow out;
    out.tensor = word("tensor").value_or("");
    if (row_.contains("layer")) {
      if (!row_["layer"].is_number_integer()) return complain("\"layer\" is no whole number");
      out.layer = row_["layer"].get<int>();
    }
    for (const auto& [key, to] : {std::pair{"role", &out.role}, std::pair{"part", &out.part}}) {
      if (!row_.contains(key)) continue;
      *to = role_named(word(key).value_or(""));
      if (!*to) return complain(fmt::format("\"{}\" is no role", key));
    }
    auto law = read_law();
    if (!law) return std::unexpected(law.error());
    out.law = *law;
    return out;
  }

 private:
  Expected<Distribution> read_law() const {
    const std::string name = word("law").value_or("");
    const auto std = number("std", 0), mean = number("mean", 0), cut = number("cut", 2), diagonal = number("diagonal", 0);
    for (const auto& n : {std, mean, cut, diagonal}) {
      if (!n) return std::unexpected(n.error());
    }
    if (*std < 0) return complain("\"std\" is below 0");
    if (name == "constant") return Distribution::constant(*mean);
    if (name == "normal") return Distribution::normal(*std, *mean);
    if (name == "uniform") return Distribution::uniform(*std * std::sqrt(3.0), *mean);
    if (name == "truncated") {
      if (!(*cut > 0)) return complain("\"cut\" is not above 0");
      return Distribution::truncated(*std / Distribution::truncated(1, *cut).std(), *cut, *mean);
    }
    if (name == "orthogonal") return Distribution::structured(Distribution::Structure::orthogonal, *std);
    return complain(fmt::format("\"{}\" is no law: normal, uniform, truncated, constant, orthogonal", show(name)));
  }

  [[nodiscard]] std::optional<std::string> word(const char* key) const {
    const auto it = row_.find(key);
    if (it == row_.end() || !it->is_string()) return {};
    return it->get<std::string>();
  }
  [[nodiscard]] Expected<double> number(const char* key, double otherwise) const {
    const auto it = row_.find(key);
    if (it == row_.end()) return otherwise;
    if (!it->is_number() || !std::isfinite(it->get<double>())) return complain(fmt::format("\"{}\" is no number", key));
    return it->get<double>();
  }
  [[nodiscard]] std::unexpected<Error> complain(const std::string& what) const {
    return fail(fmt::format("{}: {}", where_, what), fmt::format("a scheme's file looks like {}", form));
  }

  const json& row_;
  std::string where_;
};

struct Kept {
  SchemeFile file;
  Scheme scheme;
};

}  // namespace

const Scheme* keep_scheme(SchemeFile file) {
  static Lock lock;
  static std::deque<std::unique_ptr<Kept>> all;
  auto kept = std::make_unique<Kept>(Kept{std::move(file), {}});
  const Scheme& other = *kept->file.otherwise;
  kept->scheme = {.name = kept->file.path,
                  .summary = kept->file.summary,
                  .source = "a file",
                  .assign = other.assign,
                  .by_part = other.by_part || std::ranges::any_of(kept->file.laws, [](const LawRow& r) { return r.part.has_value(); }),
                  .zeroes_padding = other.zeroes_padding,
                  .file = &kept->file};
  const Hold hold(lock);
  all.push_back(std::move(kept));
  return &all.back()->scheme;
}

bool LawRow::fits(const Param& p) const {
  const bool named = tensor.empty() || tensor == p.name || ::fnmatch(tensor.c_str(), p.name.c_str(), 0) == 0;
  const bool has_part = !part || std::ranges::any_of(p.parts, [&](const Part& x) { return x.role == *part; });
  return named && has_part && (!role || *role == p.role) && (!layer || *layer == p.layer);
}

const Distribution* SchemeFile::law_of(const Param& p, const Part* part) const {
  const auto it = std::find_if(laws.rbegin(), laws.rend(), [&](const LawRow& row) {
    const bool meant = row.part ? part != nullptr && *row.part == part->role : true;
    return meant && row.fits(p);
  });
  if (part == nullptr && speaks_of_parts(p)) return nullptr;
  return it == laws.rend() ? nullptr : &it->law;
}

bool SchemeFile::speaks_of_parts(const Param& p) const {
  return std::ranges::any_of(laws, [&](const LawRow& row) { return row.part && row.fits(p); });
}

Expected<const Scheme*> read_scheme(const std::string& path) {
  const auto text = read_text(path, JsonLimits().max_bytes);
  if (!text) return std::unexpected(text.error());
  const auto all = parse_json(*text, path);
  if (!all) return std::unexpected(all.error());
  const std::string schema = all->is_object() ? all->value("schema", json("")).is_string() ? all->value("schema", "") : "" : "";
  if ((schema != "stepzero.scheme/1" && schema != "stepzero.transfer/1") || !all->contains("tensors") || !(*all)["tensors"].is_array()) {
    return fail(fmt::format("{}: this is no scheme", show(path)), fmt::format("it looks like {}", form));
  }
  SchemeFile file{.path = path, .summary = fmt::format("the laws of {}", show(path))};
  const json name = all->value("otherwise", json("hf")), set = all->value("set", json::array());
  if (!name.is_string() || name.get<std::string>().ends_with(".json") || !set.is_array())
    return fail(fmt::format("{}: \"otherwise\" is a scheme's name, \"set\" a list", show(path)), fmt::format("it looks like {}", form));
  const auto otherwise = find_scheme(name.get<std::string>());
  if (!otherwise) return std::unexpected(otherwise.error());
  file.otherwise = *otherwise;
  for (const json& assignment : set) {
    if (!assignment.is_string()) return fail(fmt::format("{}: \"set\" is a list of \"field=value\"", show(path)));
    file.set.push_back(assignment.get<std::string>());
  }
  const json& rows = (*all)["tensors"];
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const LawReader reader(rows[i], fmt::format("{}: row {} of \"tensors\"", show(path), i + 1));
    if (!reader.has_law()) continue;
    auto row = reader.read();
    if (!row) return std::unexpected(row.error());
    file.laws.push_back(std::move(*row));
  }
  return keep_scheme(std::move(file));
}

Expected<void> check_fits(const SchemeFile& file, const Graph& graph) {
  for (const LawRow& row : file.laws) {
    if (std::ranges::any_of(graph.params, [&](const Param& p) { return row.fits(p); })) continue;
    return fail(fmt::format("{}: the row of \"{}\" fits no tensor of the model", show(file.path), show(row.tensor)),
                fmt::format("tensors are named like \"{}\"", graph.params.empty() ? "" : show(graph.params.back().name)));
  }
  return {};
}

Expected<void> set_fields(Architecture& a, const SchemeFile& file) {
  for (const std::string& assignment : file.set) {
    const auto equals = std::min(assignment.find('='), assignment.size());
    const std::string_view key = std::string_view(assignment).substr(0, equals);
    const auto known = fields();
    const auto field = std::ranges::find(known, key, &Field::name);
    if (field == known.end() || equals == assignment.size())
      return fail(fmt::format("{}: \"{}\" sets no field of a model", show(file.path), show(assignment)), "for example logit_scale=0.25");
    if (auto done = field->set(a, std::string_view(assignment).substr(equals + 1)); !done)
      return fail(fmt::format("{}: {}: {}", show(file.path), show(key), done.error().message), done.error().hint);
  }
  return {};
}

std::string law_name(const Distribution& law) {
  using S = Distribution::Structure;
  if (law.structure == S::orthogonal) return "orthogonal";
  if (law.structure == S::diagonal) return "diagonal";
  if (law.structure == S::mimetic) return "mimetic";
  switch (law.kind) {
    case Distribution::Kind::constant:
      return "constant";
    case Distribution::Kind::normal:
      return "normal";
    case Distribution::Kind::uniform:
      return "uniform";
    case Distribution::Kind::truncated_normal:
      return "truncated";
  }
  return "constant";
}

}  // namespace stepzero
