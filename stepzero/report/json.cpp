#include "stepzero/report/json.hpp"

#include <cmath>

#include <fmt/format.h>

#include "stepzero/report/json_parts.hpp"
#include "stepzero/signal/good_rates.hpp"

namespace stepzero {

Json json_number(double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); }

Json json(const Finding& f) {
  Json out = {{"id", f.id}, {"severity", to_string(f.severity)}, {"where", f.where}, {"evidence", f.evidence}, {"remedy", f.remedy}};
  for (const Remedy& r : f.remedies) {
    out["remedies"].push_back({{"flags", r.change.flags()},
                               {"command", r.command},
                               {"quantity", f.reading.what},
                               {"before", json_number(r.before)},
                               {"after", json_number(r.after)},
                               {"brings", r.brings}});
  }
  return out;
}

Json json(const Architecture& a, Index parameters) {
  return {{"name", a.name},
          {"family", a.family},
          {"parameters", parameters},
          {"layers", a.layers},
          {"width", a.width},
          {"heads", a.heads},
          {"kv_heads", a.kv_heads},
          {"head_dim", a.head_dim},
          {"ffn", a.ffn},
          {"vocab", a.vocab},
          {"positions", a.positions},
          {"norm", to_string(a.norm)},
          {"norm_placement", to_string(a.norm_placement)},
          {"activation", to_string(a.activation)},
          {"gated", a.gated},
          {"tied", a.tied},
          {"init_std", a.init_std},
          {"changes", a.changes}};
}

std::string embedded(const Json& json) {
  std::string out;
  for (const char c : json.dump(-1, ' ', true, Json::error_handler_t::replace)) {
    if (c == '<' || c == '>' || c == '&' || c == '\'')
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      out += c;
  }
  return out;
}

std::string filled(std::string_view page, const std::string& data) {
  constexpr std::string_view slot = "\"STEPZERO_DATA\"";
  const std::size_t at = page.find(slot);
  STEPZERO_CHECK(at != std::string_view::npos);
  return std::string(page.substr(0, at)) + data + std::string(page.substr(at + slot.size()));
}

std::string dump(const Json& json) { return json.dump(1, ' ', true, Json::error_handler_t::replace); }

namespace {

Json json(const Value& value) {
  Json out = Json::object();
  if (value.predicted) out["predicted"] = json_number(*value.predicted);
  if (value.spread) out["spread"] = json_number(*value.spread);
  if (value.measured) {
    out["measured"] = json_number(*value.measured);
    out["stderr"] = value.standard_error ? json_number(*value.standard_error) : Json(nullptr);
  }
  return out;
}

Json json(const NodeSignal& n) {
  return {{"name", n.name},
          {"kind", n.kind},
          {"grade", n.grade},
          {"forward",
           {{"second_moment", json(n.forward.second_moment)},
            {"variance", json(n.forward.variance)},
            {"mean", json(n.forward.mean)},
            {"token_cosine", json(n.forward.token_cosine)}}},
          {"backward",
           {{"norm", json(n.backward.norm)},
            {"second_moment", json(n.backward.second_moment)},
            {"token_cosine", json(n.backward.token_cosine)}}}};
}

Json json(const AttentionSignal& a) {
  return {{"name", a.name}, {"score_variance", json(a.score_variance)}, {"entropy", json(a.entropy)}, {"sum_squares", json(a.sum_squares)}};
}

Json json(const ParameterSignal& p) {
  Json out = {{"name", p.name}, {"shape", p.shape}, {"std", json(p.std)}, {"gradient_norm", json(p.gradient_norm)}};
  if (p.frozen) out["frozen"] = true;
  return out;
}

Json json(const JacobianSignal& j) { return {{"from", j.from}, {"to", j.to}, {"square", json(j.square)}}; }

Json json(const StepSignal::Wire& w) {
  return {{"name", w.name},
          {"kind", w.kind},
          {"second_moment", json(w.second_moment)},
          {"token_cosine", json(w.token_cosine)},
          {"change", json(w.change)},
          {"relative", json(w.relative)},
          {"direct", json(w.direct)},
          {"carried", json(w.carried)}};
}

Json json(const StepSignal::Scores& a) {
  return {{"name", a.name}, {"score_change", json(a.change)}, {"score_variance", json(a.score_variance)}, {"entropy", json(a.entropy)}};
}

Json json(const StepSignal::Parameter& p) {
  return {{"name", p.name},
          {"update_norm", json(p.update_norm)},
          {"relative", json(p.relative)},
          {"spectral_norm", json(p.spectral_norm)},
          {"direct_change", json(p.direct_change)},
          {"decrease", json(p.decrease)}};
}

Json json(const StepSignal::Rate& r) { return {{"rate", r.rate}, {"loss", json(r.loss)}}; }

Json json(const StepSignal& s);

template <class List>
Json json_list(const List& list) {
  Json out = Json::array();
  for (const auto& item : list) out.push_back(json(item));
  return out;
}

Json json(const OptimizerSignal& o) {
  Json out = {{"name", o.name}, {"rate", o.rate}};
  for (const auto& [key, value] : o.settings) out[key] = json_number(value);
  return out;
}

// The measured side of stepzero.step/1.
Json json(const StepSignal& s) {
  const auto some = [](const std::optional<double>& x) { return x ? json_number(*x) : Json(nullptr); };
  Json streams = Json::array();
  for (const StepSignal::Wire& w : s.wires) {
    const auto dot = w.name.find("stream.");
    if (dot != std::string::npos && (dot == 0 || w.name[dot - 1] == '.'))
      streams.push_back({{"name", w.name}, {"change", json(w.change)}, {"relative", json(w.relative)}});
  }
  const StepSignal::Wire& logits = s.wires[s.logits];
  Json out = {{"streams", std::move(streams)},
              {"attention", json_list(s.attention)},
              {"logits", {{"change", json(logits.change)}, {"relative", json(logits.relative)}}},
              {"loss", {{"before", json(s.before)}, {"after", json(s.after)}, {"first_order", json(s.first_order)}}},
              {"nodes", json_list(s.wires)},
              {"parameters", json_list(s.parameters)}};
  if (s.rates.empty()) return out;
  const GoodRates good = good_rates(s);
  out["rates"] = json_list(s.rates);
  out["good_rates"] = {{"low", some(good.low)}, {"best", some(good.best)}, {"high", some(good.high)}, {"stops", some(good.stops)}};
  return out;
}

}  // namespace

namespace {

Json of(const Signal& s) {
  Json out = {{"schema", "stepzero.signal/1"},
              {"model", json(s.architecture, s.parameter_count)},
              {"scheme", s.scheme},
              {"input", {{"batch", s.batch}, {"seq_len", s.seq_len}, {"tokens", s.tokens}}},
              {"seed", s.seed},
              {"seeds", s.seeds},
              {"weightless", s.weightless},
              {"loss", json(s.loss)},
              {"gradient_norm", json(s.gradient_norm)},
              {"growth", {{"forward", json(s.growth.forward)}, {"angle", json(s.growth.angle)}, {"gradient", json(s.growth.gradient)}}},
              {"findings", json_list(s.findings)},
              {"nodes", json_list(s.nodes)},
              {"attention", json_list(s.attention)},
              {"parameters", json_list(s.parameters)}};
  if (s.trainable_count != s.parameter_count) out["model"]["trainable"] = s.trainable_count;
  if (s.extension) {
    out["extension"] = {
        {"from", s.extension->from}, {"median", json_number(s.extension->median)}, {"nearly_all", json_number(s.extension->nearly_all)}};
  }
  if (s.sequences_from > 0) out["sequences_from"] = s.sequences_from;
  if (!s.dtype.empty()) out["dtype"] = s.dtype;
  if (s.kernel_draws > 0) out["kernel_draws"] = s.kernel_draws;
  if (!s.jacobians.empty()) out["jacobians"] = json_list(s.jacobians);
  if (!s.steps.empty()) {
    out["optimizer"] = json(s.optimizer);
    out["steps"] = json_list(s.steps);
  }
  return out;
}

Json json(const Comparison& r) {
  return {{"where", r.where},
          {"what", r.what},
          {"predicted", json_number(r.predicted)},
          {"measured", json_number(r.measured)},
          {"stderr", json_number(r.standard_error)},
          {"error", json_number(r.error)},
          {"z", json_number(r.z)},
          {"off", r.wrong()}};
}

}  // namespace

std::string to_json(const Signal& s) { return dump(of(s)); }

std::string to_json(const Signal& s, const std::vector<Comparison>& rows) {
  Json out = of(s);
  out["comparison"] = Json::array();
  for (const Comparison& r : rows) out["comparison"].push_back(json(r));
  return dump(out);
}

}  // namespace stepzero
