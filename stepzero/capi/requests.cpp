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
  k.key("features", r.features);
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

void step_keys(Keys& k, StepRequest& r) {
  input_keys(k, r.input);
  optimizer_keys(k, r.optimizer);
  k.key("rates", r.rates);
  k.key("predicted", r.predicted);
  k.key("measure", r.measured);
  k.key("search", r.search);
  k.key("effort", r.effort);
  k.key("seed", r.seed);
  k.key("seeds", r.seeds);
}

void coord_keys(Keys& k, CoordRequest& r) {
  input_keys(k, r.input);
  optimizer_keys(k, r.optimizer);
  k.key("widths", r.widths);
  k.key("depths", r.depths);
  k.key("base", r.base);
  k.key("grow_heads", r.grow_heads);
  k.key("keep_keys", r.keep_keys);
  k.key("parametrization", r.parametrization);
  k.key("at", r.at);
  k.key("zero_output", r.zero_output);
  k.key("zero_query", r.zero_query);
  k.key("predicted", r.predicted);
  k.key("steps", r.steps);
  k.key("seed", r.seed);
  k.key("seeds", r.seeds);
}

void transfer_keys(Keys& k, TransferRequest& r) {
  input_keys(k, r.input);
  optimizer_keys(k, r.optimizer);
  k.key("target", r.target);
  k.key("base_set", r.base_set);
  k.key("target_set", r.target_set);
  k.key("parametrization", r.parametrization);
  k.key("rates", r.rates);
  k.key("zero_output", r.zero_output);
  k.key("zero_query", r.zero_query);
  k.key("check", r.check);
  k.key("seed", r.seed);
  k.key("seeds", r.seeds);
}

void init_keys(Keys& k, InitRequest& r) {
  k.key("path", r.path);
  k.key("seed", r.seed);
  k.key("dtype", r.dtype);
  k.key("max_shard_bytes", r.max_shard_bytes);
  k.key("only", r.only);
  k.key("replace", r.replace);
}

void solve_keys(Keys& k, SolveRequest& r) {
  input_keys(k, r.input);
  optimizer_keys(k, r.optimizer);
  k.key("objective", r.objective);
  k.key("target", r.targets);
  k.key("free", r.free);
  k.key("subject_to", r.subject_to);
  k.key("by", r.by);
  k.key("move_rates", r.move_rates);
  k.word("order", r.order, {{"limit", Order::limit}, {"fluctuations", Order::fluctuations}, {"draws", Order::draws}});
  k.key("rates", r.rates);
  k.key("measure", r.measure);
  k.key("seed", r.seed);
}

void sweep_keys(Keys& k, SweepRequest& r) {
  train_keys(k, r.training);
  input_keys(k, r.input);
  k.key("over", r.over);
  k.key("train", r.train);
  k.key("store", r.store);
  k.key("effort", r.effort);
  k.word("order", r.order, {{"limit", Order::limit}, {"fluctuations", Order::fluctuations}, {"draws", Order::draws}});
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

void diff_keys(Keys& k, DiffRequest& r) {
  k.key("left", r.left);
  k.key("right", r.right);
  k.key("scheme", r.scheme);
  k.key("set", r.set);
  k.key("seed", r.seed);
}

void tensor_keys(Keys& k, TensorRequest& r) {
  k.key("name", r.name);
  k.key("shape", r.shape);
  k.key("dtype", r.dtype);
  k.key("role", r.role);
  k.key("whole", r.whole);
  k.key("at", r.at);
}

void piece_keys(Keys& k, PieceRequest& r) {
  k.key("tensor", r.tensor);
  k.key("dtype", r.dtype);
  k.key("first", r.first);
  k.key("count", r.count);
  k.key("offset", r.offset);
  k.key("size", r.size);
}

// Takes a list of objects out of a request.
template <class T>
Expected<void> take_list(json& object, const char* name, std::vector<T>& to, void (*keys)(Keys&, T&)) {
  const auto it = object.find(name);
  if (it == object.end()) return {};
  if (!it->is_array()) return fail(fmt::format("request: \"{}\": expected a list of objects, found {}", name, show(it->dump())));
  for (const json& entry : *it) {
    if (!entry.is_object()) return fail(fmt::format("request: \"{}\": expected an object, found {}", name, show(entry.dump())));
    Keys k;
    keys(k, to.emplace_back());
    if (auto done = k.read(entry); !done) return done;
  }
  object.erase(it);
  return {};
}

bool is_of_a_model(Call call) { return call != Call::audit && call != Call::audit_memory && call != Call::diff; }

Keys keys_of(Call call, AnyRequest& r) {
  Keys k;
  if (is_of_a_model(call)) model_keys(k, r.model);
  switch (call) {
    case Call::predict:
      input_keys(k, r.predict.input);
      k.key("effort", r.predict.effort);
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
    case Call::step:
      step_keys(k, r.step);
      break;
    case Call::coord:
      coord_keys(k, r.coord);
      break;
    case Call::transfer:
      transfer_keys(k, r.transfer);
      break;
    case Call::diff:
      diff_keys(k, r.diff);
      break;
    case Call::init:
      init_keys(k, r.init);
      break;
    case Call::audit_memory:
      k.key("consequences", r.consequences);
      [[fallthrough]];
    case Call::audit:
      audit_keys(k, r.audit);
      break;
    case Call::solve:
      solve_keys(k, r.solve);
      break;
    case Call::sweep:
      sweep_keys(k, r.sweep);
      break;
    case Call::fill:
      k.key("seed", r.init.seed);
      break;
    case Call::describe:
    case Call::tensors:
      break;
  }
  return k;
}

}  // namespace

Expected<AnyRequest> read_request(Call call, std::string_view text) {
  auto object = parse_json(text, "request");
  if (!object) return std::unexpected(object.error());
  if (!object->is_object()) return fail("request: expected a JSON object");
  AnyRequest r;
  if (call == Call::tensors || call == Call::fill || call == Call::audit_memory) {
    if (auto done = take_list(*object, "tensors", r.tensors, tensor_keys); !done) return std::unexpected(done.error());
  }
  if (call == Call::fill) {
    if (auto done = take_list(*object, "pieces", r.pieces, piece_keys); !done) return std::unexpected(done.error());
  }
  if (auto done = keys_of(call, r).read(*object); !done) return std::unexpected(done.error());
  const auto missing = [](const char* key) { return fail(fmt::format("request: \"{}\" is missing", key)); };
  if (call == Call::audit && r.audit.path.empty()) return missing("path");
  if (call == Call::diff && r.diff.left.empty()) return missing("left");
  if (call == Call::diff && r.diff.right.empty()) return missing("right");
  if (is_of_a_model(call) && r.model.model.empty() && r.tensors.empty()) return missing("model");
  if (call == Call::sweep) r.sweep.training.input = r.sweep.input;
  return r;
}

}  // namespace stepzero
