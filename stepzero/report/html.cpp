#include "stepzero/report/html.hpp"

#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "stepzero/graph/role_names.hpp"
#include "stepzero/report/depth.hpp"
#include "stepzero/report/diagnosis.hpp"
#include "stepzero/report/json_parts.hpp"

namespace stepzero {

namespace {

// Five digits are more than a screen shows, and a third of the bytes.
Json rounded(double x) { return std::isfinite(x) ? Json(std::strtod(fmt::format("{:.5g}", x).c_str(), nullptr)) : Json(nullptr); }
Json rounded(const std::optional<double>& x) { return x ? rounded(*x) : Json(nullptr); }

Json value(const Value& v) {
  Json out = Json::object();
  if (v.predicted) out["p"] = rounded(v.predicted);
  if (v.spread) out["s"] = rounded(v.spread);
  if (v.measured) out["m"] = rounded(v.measured);
  if (v.standard_error) out["e"] = rounded(v.standard_error);
  return out;
}

// A quantity of every item: an array for each of predicted, spread, measured and stderr that some item has.
template <class Items, class Get>
Json quantity(const Items& items, const Get& get) {
  const auto column = [&](std::optional<double> Value::* part) {
    Json list = Json::array();
    bool any = false;
    for (const auto& item : items) {
      const std::optional<double>& x = get(item).*part;
      any = any || x.has_value();
      list.push_back(rounded(x));
    }
    return any ? list : Json();
  };
  Json out = Json::object();
  const std::pair<const char*, std::optional<double> Value::*> parts[] = {
      {"p", &Value::predicted}, {"s", &Value::spread}, {"m", &Value::measured}, {"e", &Value::standard_error}};
  for (const auto& [name, part] : parts) {
    if (Json list = column(part); !list.is_null()) out[name] = std::move(list);
  }
  return out;
}

template <class Items, class Get>
Json texts(const Items& items, const Get& get) {
  Json list = Json::array();
  for (const auto& item : items) list.push_back(get(item));
  return list;
}

Json findings(const Signal& s) {
  Json list = Json::array();
  for (const Finding& f : s.findings) {
    const auto known = std::ranges::find(diagnoses(), f.id, &Diagnosis::id);
    Json finding = json(f);
    finding["meaning"] = known == diagnoses().end() ? "" : known->meaning;
    list.push_back(std::move(finding));
  }
  return list;
}

Json model(const Signal& s) {
  Json out = json(s.architecture, s.parameter_count);
  out["parallel"] = s.architecture.parallel_block;
  if (s.trainable_count != s.parameter_count) out["trainable"] = s.trainable_count;
  return out;
}

// What the charts over the depth need; `whole` with everything that can be known about a point.
Json depth(const Signal& s, const Stack& stack) {
  Json added = Json::array(), uniform = Json::array();
  for (std::size_t l = 0; l < stack.depth(); ++l) {
    added.push_back(rounded(added_share(s, stack, l)));
    uniform.push_back(rounded(uniform_entropy(s, stack, l)));
  }
  static const Value none;
  const auto entropy = [](const Layer& l) -> const Value& { return l.attention == nullptr ? none : l.attention->entropy; };
  const auto scores = [](const Layer& l) -> const Value& { return l.attention == nullptr ? none : l.attention->score_variance; };
  const auto branch = [](const NodeSignal* Layer::* which) {
    return [which](const Layer& l) -> const Value& { return l.*which == nullptr ? none : (l.*which)->forward.second_moment; };
  };
  return {{"prefix", stack.prefix},
          {"signal", quantity(stack.layers, [](const Layer& l) -> const Value& { return l.stream->forward.second_moment; })},
          {"gradient", quantity(stack.layers, [](const Layer& l) -> const Value& { return l.stream->backward.norm; })},
          {"cosine", quantity(stack.layers, [](const Layer& l) -> const Value& { return l.stream->forward.token_cosine; })},
          {"entropy", quantity(stack.layers, entropy)},
          {"scores", quantity(stack.layers, scores)},
          {"attention_branch", quantity(stack.layers, branch(&Layer::attention_branch))},
          {"ffn_branch", quantity(stack.layers, branch(&Layer::ffn_branch))},
          {"added", added},
          {"uniform", uniform}};
}

Json depths(const Signal& s) {
  Json list = Json::array();
  for (const Stack& stack : stacks(s)) list.push_back(depth(s, stack));
  return list;
}

Json totals(const Signal& s) {
  return {{"loss", value(s.loss)},
          {"gradient_norm", value(s.gradient_norm)},
          {"growth", {{"forward", value(s.growth.forward)}, {"angle", value(s.growth.angle)}, {"gradient", value(s.growth.gradient)}}}};
}

Json node_table(const Signal& s) {
  const auto& n = s.nodes;
  using N = const NodeSignal&;
  return {{"name", texts(n, [](N x) { return x.name; })},
          {"kind", texts(n, [](N x) { return x.kind; })},
          {"grade", texts(n, [](N x) { return x.grade; })},
          {"second_moment", quantity(n, [](N x) -> const Value& { return x.forward.second_moment; })},
          {"mean", quantity(n, [](N x) -> const Value& { return x.forward.mean; })},
          {"cosine", quantity(n, [](N x) -> const Value& { return x.forward.token_cosine; })},
          {"gradient", quantity(n, [](N x) -> const Value& { return x.backward.norm; })},
          {"gradient_square", quantity(n, [](N x) -> const Value& { return x.backward.second_moment; })},
          {"gradient_cosine", quantity(n, [](N x) -> const Value& { return x.backward.token_cosine; })}};
}

Json parameter_table(const Signal& s) {
  const auto& p = s.parameters;
  using P = const ParameterSignal&;
  return {{"name", texts(p, [](P x) { return x.name; })},
          {"shape", texts(p, [](P x) { return x.shape; })},
          {"role", texts(p, [](P x) { return words(x.role); })},
          {"layer", texts(p, [](P x) { return x.layer; })},
          {"std", quantity(p, [](P x) -> const Value& { return x.std; })},
          {"gradient", quantity(p, [](P x) -> const Value& { return x.gradient_norm; })}};
}

Json attention_table(const Signal& s) {
  const auto& a = s.attention;
  using A = const AttentionSignal&;
  return {{"name", texts(a, [](A x) { return x.name; })},
          {"score_variance", quantity(a, [](A x) -> const Value& { return x.score_variance; })},
          {"entropy", quantity(a, [](A x) -> const Value& { return x.entropy; })},
          {"sum_squares", quantity(a, [](A x) -> const Value& { return x.sum_squares; })}};
}

Json alternative(const Signal& s) {
  Json out = totals(s);
  out["scheme"] = s.scheme;
  out["changes"] = s.architecture.changes;
  out["verdict"] = verdict(s.findings);
  out["findings"] = findings(s);
  out["depths"] = depths(s);
  return out;
}

}  // namespace

std::string page_data(const Page& page) {
  const Signal& s = page.signal;
  Json data = totals(s);
  data["version"] = page.version;
  data["command"] = page.command;
  data["model"] = model(s);
  data["scheme"] = s.scheme;
  data["input"] = {{"batch", s.batch}, {"seq_len", s.seq_len}, {"tokens", s.tokens}};
  data["seed"] = s.seed;
  data["seeds"] = s.seeds;
  data["weightless"] = s.weightless;
  if (s.extension) data["carried_on_from"] = s.extension->from;
  data["uniform_loss"] = rounded(std::log(static_cast<double>(s.architecture.vocab)));
  data["verdict"] = verdict(s.findings);
  data["findings"] = findings(s);
  data["depths"] = depths(s);
  data["nodes"] = node_table(s);
  data["attention"] = attention_table(s);
  data["parameters"] = parameter_table(s);
  data["alternatives"] = Json::array();
  for (const Signal& other : page.alternatives) data["alternatives"].push_back(alternative(other));
  return embedded(data);
}

std::string to_html(const Page& page) { return filled(page_template(), page_data(page)); }

}  // namespace stepzero
