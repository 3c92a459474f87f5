#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"
#include "stepzero/train/record.hpp"

namespace stepzero {

namespace {

using Json = nlohmann::ordered_json;

Json number(double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); }

// Reads members; remembers the first that is not there.
class Reader {
 public:
  explicit Reader(const nlohmann::json& object) : object_(object) {}

  double number(const char* key) {
    const nlohmann::json* x = find(key);
    return x != nullptr && x->is_number() ? x->get<double>() : std::numeric_limits<double>::quiet_NaN();
  }
  int whole(const char* key) {
    const nlohmann::json* x = find(key);
    return x != nullptr && x->is_number_integer() ? x->get<int>() : 0;
  }
  std::string text(const char* key) {
    const nlohmann::json* x = find(key);
    return x != nullptr && x->is_string() ? x->get<std::string>() : "";
  }
  template <class F>
  void each(const char* key, const F& f) {
    const nlohmann::json* x = find(key);
    if (x == nullptr || !x->is_array()) return;
    for (const nlohmann::json& item : *x) {
      Reader reader(item);
      f(reader);
      if (missing_.empty()) missing_ = reader.missing_;
    }
  }
  [[nodiscard]] const std::string& missing() const { return missing_; }
  std::uint64_t seed() {
    const nlohmann::json* x = find("seed");
    return x != nullptr && x->is_number_unsigned() ? x->get<std::uint64_t>() : 0;
  }

 private:
  const nlohmann::json* find(const char* key) {
    const auto it = object_.is_object() ? object_.find(key) : object_.end();
    if (it != object_.end()) return &*it;
    if (missing_.empty()) missing_ = key;
    return nullptr;
  }
  const nlohmann::json& object_;
  std::string missing_;
};

Json to_json(const Watched& w) {
  Json out = {{"step", w.step}, {"streams", Json::array()}, {"attention", Json::array()}};
  for (const auto& s : w.streams) {
    out["streams"].push_back({{"name", s.name},
                              {"second_moment", number(s.second_moment)},
                              {"token_cosine", number(s.token_cosine)},
                              {"gradient_norm", number(s.gradient_norm)}});
  }
  for (const auto& a : w.attention) {
    out["attention"].push_back({{"name", a.name}, {"score_variance", number(a.score_variance)}, {"entropy", number(a.entropy)}});
  }
  return out;
}

Watched watched_from(Reader& from) {
  Watched w{.step = from.whole("step")};
  from.each("streams", [&](Reader& s) {
    w.streams.push_back({s.text("name"), s.number("second_moment"), s.number("token_cosine"), s.number("gradient_norm")});
  });
  from.each("attention", [&](Reader& a) { w.attention.push_back({a.text("name"), a.number("score_variance"), a.number("entropy")}); });
  return w;
}

}  // namespace

Json to_json(const RunRecord& r) {
  Json out = {{"seed", r.seed}, {"scheme", r.scheme}, {"steps", Json::array()}, {"validation", Json::array()}, {"depth", Json::array()}};
  int step = 0;
  for (const TrainStep& s : r.steps) {
    out["steps"].push_back(
        {{"step", step++}, {"loss", number(s.loss)}, {"gradient_norm", number(s.gradient_norm)}, {"rate", number(s.rate)}});
  }
  for (const HeldOut& v : r.validation) out["validation"].push_back({{"step", v.step}, {"loss", number(v.loss)}});
  for (const Watched& w : r.watched) out["depth"].push_back(to_json(w));
  out["outcome"] = to_string(r.outcome);
  out["where"] = r.where.empty() ? Json(nullptr) : Json(r.where);
  out["tokens_per_second"] = number(r.tokens_per_second);
  return out;
}

Expected<RunRecord> record_from(const nlohmann::json& json, const std::string& where) {
  Reader from(json);
  RunRecord r{.scheme = from.text("scheme"), .seed = from.seed()};
  from.each("steps", [&](Reader& s) { r.steps.push_back({s.number("loss"), s.number("gradient_norm"), s.number("rate")}); });
  from.each("validation", [&](Reader& v) { r.validation.push_back({v.whole("step"), v.number("loss")}); });
  from.each("depth", [&](Reader& w) { r.watched.push_back(watched_from(w)); });
  const std::string outcome = from.text("outcome");
  for (const Outcome o : {Outcome::diverged, Outcome::stalled}) {
    if (outcome == to_string(o)) r.outcome = o;
  }
  r.where = from.text("where");
  r.tokens_per_second = from.number("tokens_per_second");
  if (from.missing().empty()) return r;
  return fail(fmt::format("{}: the record of the run has no \"{}\"", show(where), from.missing()));
}

}  // namespace stepzero
