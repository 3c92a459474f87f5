#include "stepzero/graph/role_names.hpp"
#include "stepzero/report/audit.hpp"
#include "stepzero/report/json_parts.hpp"

namespace stepzero {

namespace {

Json json(const Summary& s, bool moments_only) {
  Json out = {{"count", s.count},
              {"mean", json_number(s.mean)},
              {"std", json_number(s.std)},
              {"skew", json_number(s.skew)},
              {"kurtosis", json_number(s.kurtosis)},
              {"min", json_number(s.min)},
              {"max", json_number(s.max)},
              {"zeros", s.zeros},
              {"subnormals", s.subnormals},
              {"nans", s.nans},
              {"infs", s.infs}};
  if (moments_only) return out;
  Json quantiles = Json::array();
  for (std::size_t i = 0; i < Summary::kLevels.size(); ++i) quantiles.push_back({Summary::kLevels[i], json_number(s.quantiles[i])});
  out["quantiles"] = std::move(quantiles);
  return out;
}

Json json(const Lines& lines) { return {{"dead", lines.dead}, {"repeated", lines.repeated}}; }

Json json(const TensorVerdict& v, bool moments_only) {
  const TensorCensus& c = v.census;
  Json out = {{"name", c.tensor->name}, {"shape", c.tensor->shape}, {"dtype", c.tensor->encoding.name}, {"analysed", c.analysed}};
  if (v.role) out["role"] = to_string(*v.role);
  if (v.layer >= 0) out["layer"] = v.layer;
  if (!c.analysed) return out;
  out.update(json(c.whole, moments_only));
  if (moments_only) return out;
  if (!v.formula.empty()) out["formula"] = v.formula;
  Json pieces = Json::array();
  for (std::size_t i = 0; i < c.pieces.size(); ++i) {
    const PieceCensus& p = c.pieces[i];
    Json piece = {{"law", to_string(v.laws[i])}, {"p", json_number(v.laws[i].p)}};
    if (c.pieces.size() > 1)
      piece.update({{"role", to_string(p.role)}, {"std", json_number(p.summary.std)}, {"mean", json_number(p.summary.mean)}});
    if (p.spectrum)
      piece.update({{"top_singular_value", json_number(p.spectrum->top)}, {"effective_rank", json_number(p.spectrum->effective_rank)}});
    pieces.push_back(std::move(piece));
  }
  out["pieces"] = std::move(pieces);
  if (c.tensor->shape.size() >= 2) out.update({{"rows", json(c.rows)}, {"columns", json(c.columns)}});
  if (!v.expected.empty())
    out.update({{"expected", v.expected},
                {"expected_std", json_number(v.expected_std)},
                {"z", json_number(v.fit.z)},
                {"fit_p", json_number(v.fit.p)},
                {"departs", v.departs}});
  return out;
}

Json json(const Signal& s) {
  const auto value = [](const Value& v) { return v.predicted ? json_number(*v.predicted) : Json(nullptr); };
  return {{"scheme", s.scheme},
          {"loss", value(s.loss)},
          {"gradient_norm", value(s.gradient_norm)},
          {"growth", {{"forward", value(s.growth.forward)}, {"angle", value(s.growth.angle)}, {"gradient", value(s.growth.gradient)}}}};
}

}  // namespace

std::string audit_json(const Audit& a) {
  Json out = {{"schema", "stepzero.audit/1"},
              {"model",
               {{"name", a.architecture.name},
                {"family", a.architecture.family},
                {"layers", a.architecture.layers},
                {"width", a.architecture.width},
                {"guessed", !a.known}}},
              {"bytes", a.bytes},
              {"training", to_string(a.training)},
              {"scheme", a.scheme.empty() ? Json(nullptr) : Json(a.scheme)},
              {"held_against", a.intended.empty() ? Json(nullptr) : Json(a.intended)}};
  out["others"] = Json::array();
  for (const OtherScheme& o : a.others) out["others"].push_back({{"scheme", o.name}, {"reason", o.reason}});
  out["tensors"] = Json::array();
  for (const TensorVerdict& v : a.tensors) out["tensors"].push_back(json(v, a.moments_only));
  out["findings"] = Json::array();
  for (const Finding& f : a.findings) out["findings"].push_back(json(f));
  if (a.found_signal && a.intended_signal) out["consequences"] = {{"found", json(*a.found_signal)}, {"intended", json(*a.intended_signal)}};
  for (const BaselineRow& r : a.baseline) {
    out["baseline"].push_back({{"name", r.name},
                               {"difference", r.difference},
                               {"std", json_number(r.std)},
                               {"baseline_std", json_number(r.baseline_std)},
                               {"correlation", json_number(r.correlation)}});
  }
  return dump(out);
}

}  // namespace stepzero
