#include "stepzero/capi/requests.hpp"

#include <map>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "stepzero/core/text.hpp"
#include "stepzero/io/json.hpp"

namespace stepzero {

namespace {

using nlohmann::json;

template <class T>
constexpr const char* kind_name() {
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  if constexpr (std::is_integral_v<T>) return "a whole number";
  if constexpr (std::is_floating_point_v<T>) return "a number";
  if constexpr (std::is_same_v<T, std::string>) return "a text";
  return "a list";
}

template <class T>
bool fits(const json& value) {
  if constexpr (std::is_same_v<T, bool>)
    return value.is_boolean();
  else if constexpr (std::is_unsigned_v<T>)
    return value.is_number_unsigned();
  else if constexpr (std::is_integral_v<T>)
    return value.is_number_integer() && value >= std::numeric_limits<T>::min() && value <= std::numeric_limits<T>::max();
  else if constexpr (std::is_floating_point_v<T>)
    return value.is_number();
  else if constexpr (std::is_same_v<T, std::string>)
    return value.is_string();
  else
    return value.is_array() && std::ranges::all_of(value, [](const json& each) { return fits<typename T::value_type>(each); });
}

// Where each key goes.
class Keys {
 public:
  template <class T>
  void key(const char* name, T& to) {
    readers_[name] = [&to](const json& value) -> const char* {
      if (!fits<T>(value)) return kind_name<T>();
      to = value.template get<T>();
      return nullptr;
    };
  }
  template <class T>
  void key(const char* name, std::optional<T>& to) {
    readers_[name] = [&to](const json& value) -> const char* {
      if (!fits<T>(value)) return kind_name<T>();
      to = value.template get<T>();
      return nullptr;
    };
  }
  // One of a few words.
  template <class T>
  void word(const char* name, T& to, std::map<std::string, typename T::value_type> words)
    requires requires { typename T::value_type; }
  {
    words_of(name, [&to](auto value) { to = value; }, std::move(words));
  }
  template <class T>
  void word(const char* name, T& to, std::map<std::string, T> words) {
    words_of(name, [&to](auto value) { to = value; }, std::move(words));
  }

  Expected<void> read(const json& object) const {
    std::vector<std::string> known;
    for (const auto& [name, reader] : readers_) known.push_back(name);
    for (const auto& [name, value] : object.items()) {
      if (value.is_null()) continue;  // as if it were not there
      const auto it = readers_.find(name);
      if (it == readers_.end()) {
        const std::string near = closest(name, known);
        return fail(fmt::format("request: unknown key \"{}\"", show(name)), near.empty() ? "" : fmt::format("did you mean {}?", near));
      }
      if (const char* wanted = it->second(value); wanted != nullptr)
        return fail(fmt::format("request: \"{}\": expected {}, found {}", name, wanted, show(value.dump())));
    }
    return {};
  }

 private:
  template <class Set, class T>
  void words_of(const char* name, Set set, std::map<std::string, T> words) {
    std::string list;
    for (const auto& [word, value] : words) list += (list.empty() ? "" : ", ") + word;
    readers_[name] = [set, words = std::move(words), told = "one of " + list](const json& value) -> const char* {
      const auto it = value.is_string() ? words.find(value.template get<std::string>()) : words.end();
      if (it == words.end()) return told.c_str();
      set(it->second);
      return nullptr;
    };
  }

  std::map<std::string, std::function<const char*(const json&)>, std::less<>> readers_;  // what was wanted; null: it was found
};

void model_keys(Keys& k, ModelRequest& r) {
  k.key("model", r.model);
  k.key("set", r.set);
  k.key("scheme", r.scheme);
  k.key("like", r.like);
  k.key("lora", r.lora);
}

void input_keys(Keys& k, InputOptions& r) {
  k.key("tokens", r.tokens);
  k.key("encoder_tokens", r.encoder_tokens);
  k.key("pixels", r.pixels);
  k.key("labels", r.labels);
  k.key("seq_len", r.length);
  k.key("batch", r.sequences);
  k.word("targets", r.targets, {{"next", Targets::next}, {"same", Targets::same}});
}

void optimizer_keys(Keys& k, OptimizerOptions& r) {
  k.key("optimizer", r.name);
  k.key("rate", r.rate);
  k.key("rate_adamw", r.rate_adamw);
  k.key("momentum", r.momentum);
  k.key("nesterov", r.nesterov);
  k.key("beta1", r.beta1);
  k.key("beta2", r.beta2);
  k.key("eps", r.eps);
  k.key("decay", r.decay);
  k.key("decay_matrices", r.decay_matrices);
  k.key("clip", r.clip);
  k.key("newton_schulz", r.newton_schulz);
  k.word("muon_scale", r.muon_scale, {{"max1", MuonScale::max1}, {"kimi", MuonScale::kimi}, {"spectral", MuonScale::spectral}});
}

void measure_keys(Keys& k, MeasureRequest& r) {
  input_keys(k, r.input);
  k.key("seed", r.seed);
  k.key("seeds", r.seeds);
  k.key("until_stderr", r.until);
  k.key("weights", r.weights);
  k.key("adapter", r.adapter);
  k.key("weightless", r.weightless);
  k.key("stream", r.stream);
  k.key("dtype", r.dtype);
  k.key("steps", r.steps);
  k.key("rates", r.rates);
  optimizer_keys(k, r.optimizer);
}

void train_keys(Keys& k, TrainRequest& r) {
  input_keys(k, r.input);
  optimizer_keys(k, r.optimizer);
  k.key("text", r.text);
  k.key("level", r.level);
  k.key("validation", r.validation);
  k.key("ids", r.ids);
  k.key("rates", r.rates);
  k.word("schedule", r.schedule, {{"constant", RateShape::constant}, {"cosine", RateShape::cosine}, {"linear", RateShape::linear}});
  k.key("warmup", r.warmup);
  k.key("rate_end", r.rate_end);
  k.key("accumulate", r.accumulate);
  k.key("steps", r.steps);
  k.key("until", r.until);
  k.key("seed", r.seed);
  k.key("seeds", r.seeds);
  k.key("compare_schemes", r.compare_schemes);
  k.key("weights", r.weights);
  k.key("save", r.save);
  k.key("resume", r.resume);
  k.key("save_every", r.save_every);
  k.key("validate_every", r.validate_every);
  k.key("watch", r.watch);
}

void init_keys(Keys& k, InitRequest& r) {
  k.key("path", r.path);
  k.key("seed", r.seed);
  k.key("dtype", r.dtype);
  k.key("max_shard_bytes", r.max_shard_bytes);
  k.key("only", r.only);
  k.key("replace", r.replace);
}

void audit_keys(Keys& k, AuditRequest& r) {
  k.key("path", r.path);
  k.key("config", r.config);
  k.key("set", r.set);
  k.key("like", r.like);
  k.key("scheme", r.scheme);
  k.key("baseline", r.baseline);
  k.key("moments", r.moments);
  k.key("follow_symlinks", r.follow_symlinks);
  k.key("lenient", r.lenient);
}

Keys keys_of(Call call, AnyRequest& r) {
  Keys k;
  if (call != Call::audit) model_keys(k, r.model);
  switch (call) {
    case Call::predict:
      input_keys(k, r.predict.input);
      k.key("jacobians", r.predict.jacobians);
      k.key("whole", r.predict.whole);
      k.word("order", r.predict.order, {{"limit", Order::limit}, {"fluctuations", Order::fluctuations}, {"draws", Order::draws}});
      break;
    case Call::compare:
      r.measure.seeds = 8;
      [[fallthrough]];
    case Call::measure:
      measure_keys(k, r.measure);
      break;
    case Call::report:
      measure_keys(k, r.report.measure);
      k.key("measure", r.report.measured);
      k.key("compare_schemes", r.report.compare_schemes);
      break;
    case Call::train:
      train_keys(k, r.train);
      break;
    case Call::init:
      init_keys(k, r.init);
      break;
    case Call::audit:
      audit_keys(k, r.audit);
      break;
    case Call::fill:
      k.key("seed", r.init.seed);
      k.key("dtype", r.init.dtype);
      k.key("tensor", r.tensor);
      k.key("first", r.first);
      k.key("count", r.count);
      break;
    case Call::describe:
    case Call::tensors:
      break;
  }
  return k;
}

}  // namespace

Expected<AnyRequest> read_request(Call call, std::string_view text) {
  const auto object = parse_json(text, "request");
  if (!object) return std::unexpected(object.error());
  if (!object->is_object()) return fail("request: expected a JSON object");
  AnyRequest r;
  if (auto done = keys_of(call, r).read(*object); !done) return std::unexpected(done.error());
  if (call == Call::audit ? r.audit.path.empty() : r.model.model.empty())
    return fail(fmt::format("request: \"{}\" is missing", call == Call::audit ? "path" : "model"));
  return r;
}

}  // namespace stepzero
