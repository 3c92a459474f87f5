#include "stepzero/graph/graph_json.hpp"

#include <nlohmann/json.hpp>

#include "stepzero/graph/op_fields.hpp"
#include "stepzero/graph/role_names.hpp"

namespace stepzero {

namespace {

using Json = nlohmann::ordered_json;

Json value_of(const AnyActivation& act) {
  return std::visit([](const auto& f) { return Json(f.kind); }, act);
}
Json value_of(Storage stored) { return stored == Storage::in_out ? "in_out" : "out_in"; }
template <class T>
Json value_of(const T& value) {
  return value;
}

const char* kind_name(Distribution::Kind kind) {
  using K = Distribution::Kind;
  return kind == K::constant ? "constant" : kind == K::normal ? "normal" : kind == K::uniform ? "uniform" : "truncated_normal";
}

Json json(const Distribution& d, const Param& p) {
  using S = Distribution::Structure;
  if (d.structure == S::ramp) return {"ramp", d.high, 0.0, 0.0};
  if (d.structure == S::waves) return {"waves", static_cast<double>(p.rows()), static_cast<double>(p.cols()), d.low};
  if (d.structure == S::time_steps) return {"time_steps", d.low, d.high, d.cut};
  return {kind_name(d.kind), d.mean, d.scale, d.cut};
}

Json json(const Param& p) {
  Json out = {{"name", p.name},         {"shape", p.shape},     {"role", to_string(p.role)}, {"layer", p.layer},
              {"fan_in", p.fan_in},     {"fan_out", p.fan_out}, {"neutral", p.neutral},      {"zero_row", p.zero_row},
              {"parts", Json::array()}, {"in_out", p.in_out},   {"law", Json(nullptr)}};
  for (const Part& part : p.parts) out["parts"].push_back({to_string(part.role), part.row0, part.col0, part.rows, part.cols, part.fan_out});
  if (p.law) out["law"] = json(*p.law, p);
  if (p.conv) out["conv"] = true;
  if (p.frozen) out["frozen"] = true;
  return out;
}

Json json(const Node& node) {
  Json out = {{"name", node.name}, {"op", kind_of(node.op)}, {"inputs", node.inputs}, {"params", Json::array()}};
  for (const ParamUse& u : node.params) out["params"].push_back({u.param, u.row0, u.col0, u.rows, u.cols});
  std::visit([&](const auto& op) { visit_fields(op, [&](const char* name, const auto& value) { out[name] = value_of(value); }); }, node.op);
  return out;
}

}  // namespace

Json graph_json(const Graph& graph) {
  Json out = {{"schema", graph_schema}, {"tensors", Json::array()}, {"nodes", Json::array()}};
  for (const Param& p : graph.params) out["tensors"].push_back(json(p));
  for (const Node& node : graph.nodes) out["nodes"].push_back(json(node));
  return out;
}

}  // namespace stepzero
