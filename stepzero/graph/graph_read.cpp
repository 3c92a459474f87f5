// The canonical graph from strangers.
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "stepzero/core/text.hpp"
#include "stepzero/graph/check.hpp"
#include "stepzero/graph/graph_json.hpp"
#include "stepzero/graph/op_fields.hpp"
#include "stepzero/graph/role_names.hpp"

namespace stepzero {

namespace {

using Json = nlohmann::json;

// Reads fields one by one; the first that does not fit is kept.
class FieldReader {
 public:
  explicit FieldReader(const Json& object) : object_(object) {}

  template <class T>
  void operator()(const char* name, T& to) {
    const auto it = object_.find(name);
    if (it == object_.end()) return refuse(name, "is missing");
    ++read_;
    read(name, *it, to);
  }

  [[nodiscard]] const std::string& error() const { return error_; }
  [[nodiscard]] std::size_t count() const { return read_; }

 private:
  void refuse(const char* name, const std::string& what) {
    if (error_.empty()) error_ = fmt::format("\"{}\" {}", name, what);
  }
  void read(const char* name, const Json& value, bool& to) {
    if (!value.is_boolean()) return refuse(name, "is neither true nor false");
    to = value.get<bool>();
  }
  template <std::integral T>
  void read(const char* name, const Json& value, T& to) {
    if (!value.is_number_integer() || value < -1 || value > (std::int64_t{1} << 31)) {
      return refuse(name, fmt::format("is {}, no whole number from -1 to 2^31", show(value.dump())));
    }
    to = value.get<T>();
  }
  void read(const char* name, const Json& value, double& to) {
    if (!value.is_number() || !std::isfinite(value.get<double>()) || std::abs(value.get<double>()) > 1e30) {
      return refuse(name, fmt::format("is {}, no number up to 1e30", show(value.dump())));
    }
    to = value.get<double>();
  }
  void read(const char* name, const Json& value, std::vector<double>& to) {
    to.clear();
    if (!value.is_array()) return refuse(name, "is no list");
    for (const Json& each : value) read(name, each, to.emplace_back());
  }
  void read(const char* name, const Json& value, Storage& to) {
    if (value != "in_out" && value != "out_in") return refuse(name, "is neither \"in_out\" nor \"out_in\"");
    to = value == "in_out" ? Storage::in_out : Storage::out_in;
  }
  void read(const char* name, const Json& value, AnyActivation& to) {
    const auto known = [&]<class... F>(const std::variant<F...>*) { return ((value == F::kind && (to = F{}, true)) || ...); };
    if (!value.is_string() || !known(static_cast<const AnyActivation*>(nullptr))) refuse(name, "is no function that is known");
  }

  const Json& object_;
  std::size_t read_ = 0;
  std::string error_;
};

Expected<Role> role_of(const Json& value) {
  const auto role = value.is_string() ? role_called(value.get<std::string>()) : std::nullopt;
  if (role) return *role;
  return fail(fmt::format("{} is no role", show(value.dump())));
}

// ["ramp", n, 0, 0], ["waves", rows, columns, 1 if halves], ["time_steps", least, most, floor]; of no structure: none of these.
Expected<Distribution> table_law(const std::string& name, double a, double b, double c) {
  constexpr double most = 1 << 20;
  if (name == "ramp")
    return a >= 1 && a <= most ? Expected<Distribution>(Distribution::ramp(std::floor(a))) : fail("a ramp has 1 to 2^20 steps");
  if (name == "waves") {
    if (!(a >= 1 && a <= most && b >= 1 && b <= most)) return fail("waves have rows and columns, at most 2^20 of each");
    return Distribution::waves(std::floor(a), std::floor(b), c > 0);
  }
  if (name == "time_steps") {
    if (!(a > 0 && b >= a && b <= 1e6 && c >= 0 && c <= 1e6)) return fail("time_steps wants 0 < least <= most, and a floor");
    return Distribution::time_steps(a, b, c);
  }
  return Distribution{};
}

Expected<Distribution> law_of(const Json& value) {
  using K = Distribution::Kind;
  const bool fits = value.is_array() && value.size() == 4 && value[1].is_number() && value[2].is_number() && value[3].is_number();
  if (!fits) return fail("a law is [\"normal\", mean, scale, cut]");
  Distribution d{K::constant, value[1], value[2], value[3]};
  const auto told = table_law(value[0].is_string() ? value[0].get<std::string>() : "", d.mean, d.scale, d.cut);
  if (!told) return std::unexpected(told.error());
  if (told->structure != Distribution::Structure::none) return *told;
  if (value[0] == "normal") {
    d.kind = K::normal;
  } else if (value[0] == "uniform") {
    d.kind = K::uniform;
  } else if (value[0] == "truncated_normal") {
    d.kind = K::truncated_normal;
  } else if (value[0] != "constant") {
    return fail(fmt::format("{} is no law", show(value[0].dump())), "constant, normal, uniform, truncated_normal, ramp, waves, time_steps");
  }
  const bool sane = std::abs(d.mean) <= 1e30 && d.scale >= 0 && d.scale <= 1e30 && d.cut >= 0 && d.cut <= 1e30;
  if (!sane || (d.kind == K::truncated_normal && d.cut <= 0))
    return fail("a law wants numbers up to 1e30, and a scale and a cut that are not negative");
  return d;
}

// [role, row0, col0, rows, cols, fan_out]
Expected<Part> part_of(const Json& value) {
  if (!value.is_array() || value.size() != 6) return fail("a part is [role, row0, col0, rows, cols, fan_out]");
  const auto role = role_of(value[0]);
  if (!role) return std::unexpected(role.error());
  for (std::size_t i = 1; i < 6; ++i) {
    if (!value[i].is_number_integer() || value[i] < 0 || value[i] > most_size) return fail("a part has whole numbers");
  }
  return Part{*role, value[1], value[2], value[3], value[4], value[5]};
}

Expected<std::vector<ParamUse>> uses_of(const Json& value) {
  std::vector<ParamUse> uses;
  if (!value.is_array()) return fail("\"params\" is no list");
  for (const Json& each : value) {
    bool fits = each.is_array() && each.size() == 5;
    for (std::size_t i = 0; fits && i < 5; ++i) fits = each[i].is_number_integer() && each[i] >= 0 && each[i] <= most_size;
    if (!fits) return fail("an entry of \"params\" is [tensor, row0, col0, rows, cols]");
    uses.push_back({static_cast<int>(std::min<Index>(each[0].get<Index>(), 1 << 30)), each[1], each[2], each[3], each[4]});
  }
  return uses;
}

Expected<void> add_node(Graph& graph, const Json& value) {
  if (!value.is_object() || !value.contains("op") || !value["op"].is_string() || !value.contains("name") || !value["name"].is_string()) {
    return fail("a node has a \"name\" and an \"op\"");
  }
  Json fields = value;
  for (const char* key : {"name", "op", "inputs", "params"}) fields.erase(key);
  auto op = make_op(value["op"], fields);
  if (!op) return std::unexpected(op.error());
  std::vector<int> inputs;
  for (const Json& i : value.contains("inputs") ? value["inputs"] : Json()) {
    if (!i.is_number_integer() || i < 0 || i > (1 << 30)) return fail("\"inputs\" holds numbers of nodes");
    inputs.push_back(i);
  }
  auto uses = uses_of(value.contains("params") ? value["params"] : Json());
  if (!uses) return std::unexpected(uses.error());
  return add_checked(graph, value["name"], std::move(*op), std::move(inputs), std::move(*uses));
}

}  // namespace

Expected<Param> read_param(const Json& value) {
  Param p;
  if (!value.is_object() || !value.contains("name") || !value["name"].is_string()) return fail("a tensor has a \"name\"");
  p.name = value["name"];
  const auto need = [&](const char* key) { return value.contains(key) ? value[key] : Json(); };
  for (const Json& n : need("shape")) {
    if (!n.is_number_integer()) return fail("\"shape\" holds whole numbers");
    p.shape.push_back(n);
  }
  const auto role = role_of(need("role"));
  if (!role) return std::unexpected(role.error());
  p.role = *role;
  FieldReader fields(value);
  fields("layer", p.layer), fields("fan_in", p.fan_in), fields("fan_out", p.fan_out), fields("neutral", p.neutral);
  fields("zero_row", p.zero_row), fields("in_out", p.in_out);
  if (value.contains("conv")) fields("conv", p.conv);
  if (value.contains("frozen")) fields("frozen", p.frozen);
  if (!fields.error().empty()) return fail(fields.error());
  for (const Json& each : need("parts")) {
    auto part = part_of(each);
    if (!part) return std::unexpected(part.error());
    p.parts.push_back(*part);
  }
  if (need("law").is_null()) return p;
  const auto law = law_of(value["law"]);
  if (!law) return std::unexpected(law.error());
  p.law = *law;
  return p;
}

Expected<AnyOp> make_op(const std::string& kind, const Json& fields) {
  AnyOp op;
  FieldReader reader(fields);
  const auto try_one = [&]<class T>(const T*) {
    if (kind != T::kind) return false;
    T made;
    visit_fields(made, reader);
    if constexpr (std::is_same_v<T, Experts>) std::visit([&](auto& act) { act.width = made.ffn; }, made.act);
    op = std::move(made);
    return true;
  };
  const bool known = [&]<class... Ops>(const std::variant<Ops...>*) {
    return (try_one(static_cast<const Ops*>(nullptr)) || ...);
  }(static_cast<const AnyOp*>(nullptr));
  if (!known) return fail(fmt::format("\"{}\" is no op", show(kind)), "stepzero explain lists them");
  if (!reader.error().empty()) return fail(fmt::format("{}: {}", kind, reader.error()));
  if (reader.count() != fields.size()) return fail(fmt::format("{} has {} fields, {} are given", kind, reader.count(), fields.size()));
  return op;
}

Expected<Graph> read_graph(const Json& document, const std::string& file) {
  Graph graph;
  const auto list = [&](const char* key) { return document.contains(key) && document[key].is_array() ? document[key] : Json::array(); };
  std::size_t at = 0;
  for (const Json& each : list("tensors")) {
    auto param = read_param(each);
    auto done = param ? add_checked(graph, std::move(*param)) : Expected<void>(std::unexpected(param.error()));
    if (!done) return fail(fmt::format("{}: tensor {}: {}", show(file), at, done.error().message), done.error().hint);
    ++at;
  }
  at = 0;
  for (const Json& each : list("nodes")) {
    if (auto done = add_node(graph, each); !done)
      return fail(fmt::format("{}: node {}: {}", show(file), at, done.error().message), done.error().hint);
    ++at;
  }
  if (auto done = check_whole(graph); !done) return fail(fmt::format("{}: {}", show(file), done.error().message), done.error().hint);
  return graph;
}

}  // namespace stepzero
