#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "stepzero/report/json_parts.hpp"
#include "stepzero/report/train.hpp"

namespace stepzero {

namespace {

constexpr std::size_t most_points = 600;  // of a curve: more than a screen shows

Json short_number(double x) { return std::isfinite(x) ? Json(std::strtod(fmt::format("{:.5g}", x).c_str(), nullptr)) : Json(nullptr); }

// The steps that are drawn: evenly spaced, and the last.
std::vector<std::size_t> drawn(std::size_t count) {
  std::vector<std::size_t> steps;
  const std::size_t every = (count + most_points - 1) / most_points;
  for (std::size_t k = 0; k < count; k += std::max<std::size_t>(1, every)) steps.push_back(k);
  if (!steps.empty() && steps.back() + 1 != count) steps.push_back(count - 1);
  return steps;
}

template <class Get>
Json column(const std::vector<std::size_t>& steps, const Get& get) {
  Json list = Json::array();
  for (const std::size_t k : steps) list.push_back(short_number(get(k)));
  return list;
}

// What is known of the depth of a scheme's first run.
Json depth(const RunRecord& run) {
  Json list = Json::array();
  for (const Watched& w : run.watched) {
    Json names = Json::array(), signal = Json::array(), gradient = Json::array(), cosine = Json::array(), entropy = Json::array();
    for (const auto& s : w.streams) {
      names.push_back(s.name);
      signal.push_back(short_number(std::sqrt(s.second_moment)));
      gradient.push_back(short_number(s.gradient_norm));
      cosine.push_back(short_number(s.token_cosine));
    }
    for (const auto& a : w.attention) entropy.push_back(short_number(a.entropy));
    list.push_back(
        {{"step", w.step}, {"names", names}, {"signal", signal}, {"gradient", gradient}, {"cosine", cosine}, {"entropy", entropy}});
  }
  return list;
}

Json scheme(const LossBand& band, const std::vector<RunRecord>& runs) {
  const RunRecord& first = *std::ranges::find(runs, band.scheme, &RunRecord::scheme);
  const std::vector<std::size_t> steps = drawn(band.mean.size());
  const auto of_first = [&](auto member) {
    return [&first, member](std::size_t k) { return k < first.steps.size() ? first.steps[k].*member : NAN; };
  };
  Json out = {{"scheme", band.scheme}, {"steps", steps}};
  out["loss"] = column(steps, [&](std::size_t k) { return band.mean[k]; });
  out["spread"] = column(steps, [&](std::size_t k) { return band.deviation[k]; });
  out["gradient"] = column(steps, of_first(&TrainStep::gradient_norm));
  out["rate"] = column(steps, of_first(&TrainStep::rate));
  out["held_out"] = Json::array();
  for (const HeldOut& v : band.validation) out["held_out"].push_back({Json(v.step), short_number(v.loss)});
  out["depth"] = depth(first);
  out["runs"] = Json::array();
  for (const RunRecord& r : runs) {
    if (r.scheme != band.scheme) continue;
    out["runs"].push_back({{"seed", r.seed},
                           {"updates", std::max(0, r.updates())},
                           {"first", r.steps.empty() ? Json(nullptr) : short_number(r.steps.front().loss)},
                           {"last", r.steps.empty() ? Json(nullptr) : short_number(last_loss(r.steps))},
                           {"held_out", r.validation.empty() ? Json(nullptr) : short_number(r.validation.back().loss)},
                           {"outcome", to_string(r.outcome)},
                           {"where", r.where},
                           {"tokens_per_second", short_number(r.tokens_per_second)}});
  }
  return out;
}

}  // namespace

std::string train_html(const TrainSubject& s, const std::vector<RunRecord>& runs, const std::string& command, const std::string& version) {
  Json data = {{"version", version}, {"command", command}, {"model", json(s.architecture, s.parameters)}, {"how", how_trained(s)}};
  data["data"] = {{"source", s.data}, {"batch", s.batch}, {"seq_len", s.seq_len}, {"accumulate", s.options.accumulate}};
  data["uniform_loss"] = short_number(std::log(static_cast<double>(s.architecture.vocab)));
  data["schemes"] = Json::array();
  for (const LossBand& band : loss_bands(runs)) data["schemes"].push_back(scheme(band, runs));
  return filled(train_page_template(), embedded(data));
}

}  // namespace stepzero
