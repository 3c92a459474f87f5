#include "stepzero/models/rope.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"

namespace stepzero {

namespace {

std::vector<double> plain(double base, Index turned) {
  std::vector<double> w(static_cast<std::size_t>(turned / 2));
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(turned));
  return w;
}

// Low frequencies are divided by the factor, high ones are kept, those between are mixed (Llama 3.1).
std::vector<double> llama3(const Architecture& a) {
  std::vector<double> w = plain(a.rope_theta, a.rotary);
  const auto old = static_cast<double>(a.rope_original_positions);
  for (double& x : w) {
    const double turns = old * x / (2 * std::numbers::pi);  // within the original length
    const double smooth = std::clamp((turns - a.rope_low_freq) / (a.rope_high_freq - a.rope_low_freq), 0.0, 1.0);
    x *= (1 - smooth) / a.rope_factor + smooth;
  }
  return w;
}

// Peng et al. 2023: a ramp over the pairs between those that turn beta_fast and beta_slow times.
std::vector<double> yarn(const Architecture& a) {
  std::vector<double> w = plain(a.rope_theta, a.rotary);
  const auto dim = static_cast<double>(a.rotary);
  const auto pair_that_turns = [&](double times) {
    return dim * std::log(static_cast<double>(a.rope_original_positions) / (times * 2 * std::numbers::pi)) / (2 * std::log(a.rope_theta));
  };
  double low = pair_that_turns(a.rope_beta_fast);
  double high = pair_that_turns(a.rope_beta_slow);
  if (a.rope_truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  for (std::size_t i = 0; i < w.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    w[i] *= (1 - ramp) + ramp / a.rope_factor;
  }
  return w;
}

double stretch_of(const Architecture& a) {
  if (a.rope_attention_factor > 0) return a.rope_attention_factor;
  if (a.rope_factor <= 1) return 1;
  if (a.rope_scaling == RopeScaling::yarn) return 0.1 * std::log(a.rope_factor) + 1;
  return std::sqrt(1 + std::log(a.rope_factor) / std::log(static_cast<double>(a.rope_original_positions)));
}

std::vector<double> numbers(ConfigReader& c, const nlohmann::json& object, const char* key) {
  std::vector<double> list;
  const auto it = object.find(key);
  const bool fits = it != object.end() && it->is_array() && std::ranges::all_of(*it, [](const auto& x) {
                      return x.is_number() && x.template get<double>() > 0 && std::isfinite(x.template get<double>());
                    });
  if (!fits) c.complain(key, "longrope needs a list of positive numbers here");
  if (fits) list = it->get<std::vector<double>>();
  return list;
}

double yarn_mscale(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1; }

struct Settings {
  double theta;
  double fraction;
  RopeScaling scaling = RopeScaling::none;
};

// The part that every type has.
Settings read_common(ConfigReader& rope, const Settings& defaults) {
  Settings s = defaults;
  s.theta = rope.number({"rope_theta"}, defaults.theta, 1e-6);
  s.fraction = rope.number({"partial_rotary_factor"}, defaults.fraction, 0, 1);
  const auto scaling = parse_rope_scaling(rope.text({"rope_type", "type"}, "default"));
  if (!scaling) rope.complain("rope_type", scaling.error().message);
  s.scaling = scaling.value_or(RopeScaling::none);
  return s;
}

void read_scaling(ConfigReader& rope, const nlohmann::json& object, Architecture& a, Index original) {
  using R = RopeScaling;
  const bool must = a.rope_scaling == R::linear || a.rope_scaling == R::dynamic || a.rope_scaling == R::llama3;
  if (must && !object.contains("factor")) rope.complain("factor", fmt::format("rotary scaling {} needs it", to_string(a.rope_scaling)));
  // the class's own field wins over that of the dictionary
  a.rope_original_positions = original > 0 ? original : rope.count({"original_max_position_embeddings"}, 0);
  const double ratio =
      a.rope_original_positions > 0 ? static_cast<double>(a.positions) / static_cast<double>(a.rope_original_positions) : 1;
  a.rope_factor = rope.number({"factor"}, ratio, 1e-6);
  a.rope_attention_factor = rope.number({"attention_factor"}, 0, 0);
  a.rope_low_freq = rope.number({"low_freq_factor"}, 1, 1e-6);
  a.rope_high_freq = rope.number({"high_freq_factor"}, 4, 1e-6);
  a.rope_beta_fast = rope.number({"beta_fast"}, 32, 1e-6);
  a.rope_beta_slow = rope.number({"beta_slow"}, 1, 1e-6);
  a.rope_truncate = rope.flag({"truncate"}, true);
  if (a.rope_scaling == R::llama3 && !(a.rope_high_freq > a.rope_low_freq)) {
    rope.complain("high_freq_factor", "must be larger than low_freq_factor");
  }
  if (a.rope_scaling == R::longrope) {
    if (original > 0) a.rope_factor = ratio;
    a.rope_short = numbers(rope, object, "short_factor");
    a.rope_long = numbers(rope, object, "long_factor");
  }
  const double mscale = rope.number({"mscale"}, 0, 0);
  const double all = rope.number({"mscale_all_dim"}, 0, 0);
  if (a.rope_scaling == R::yarn && a.rope_attention_factor == 0 && mscale > 0 && all > 0) {
    a.rope_attention_factor = yarn_mscale(a.rope_factor, mscale) / yarn_mscale(a.rope_factor, all);
  }
}

}  // namespace

RopeTable rope_table(const Architecture& a, Index layer) {
  using R = RopeScaling;
  if (a.rope_theta_window > 0 && has_window(a, layer)) return {{}, a.rope_theta_window, 1};
  RopeTable table{{}, a.rope_theta, 1};
  if (a.rope_scaling == R::linear) {
    table.frequencies = plain(a.rope_theta, a.rotary);
    for (double& w : table.frequencies) w /= a.rope_factor;
  }
  if (a.rope_scaling == R::llama3) table.frequencies = llama3(a);
  if (a.rope_scaling == R::yarn) table.frequencies = yarn(a);
  if (a.rope_scaling == R::longrope) {
    table.frequencies = plain(a.rope_theta, a.rotary);
    const auto& factors = a.rope_beyond ? a.rope_long : a.rope_short;
    for (std::size_t i = 0; i < table.frequencies.size(); ++i) table.frequencies[i] /= factors[i];
  }
  // dynamic begins beyond `positions`, where no sequence goes
  if (a.rope_scaling == R::yarn || a.rope_scaling == R::longrope) table.stretch = stretch_of(a);
  return table;
}

void import_rope(ConfigReader& c, Architecture& a, const RopeDefaults& defaults) {
  a.position = PositionKind::none;
  a.rotary = Architecture::whole_head;
  Settings s{c.number({"rope_theta", "rotary_emb_base"}, defaults.theta, 1e-6),
             c.number({"partial_rotary_factor", "rotary_pct"}, defaults.fraction, 0, 1)};
  const Index original = c.count({"original_max_position_embeddings"}, defaults.original_positions);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto* object = c.object(key);
    if (object == nullptr) continue;
    const auto full = object->find("full_attention");
    const auto sliding = object->find("sliding_attention");
    if (sliding != object->end() && sliding->is_object()) {
      ConfigReader local(*sliding, c.file());
      const Settings in_window = read_common(local, {a.rope_theta_window > 0 ? a.rope_theta_window : s.theta, s.fraction});
      a.rope_theta_window = in_window.theta;
      if (in_window.scaling != RopeScaling::none) local.complain("rope_type", "only plain rotary is supported in the layers with a window");
      if (const auto done = local.finish(); !done) c.complain(key, done.error().message);
    }
    const nlohmann::json& main = full != object->end() && full->is_object() ? *full : *object;
    if (&main == object && sliding != object->end()) continue;  // only the layers with a window are told
    ConfigReader rope(main, c.file());
    s = read_common(rope, s);
    a.rope_scaling = s.scaling;
    // Phi-3 called its longrope by other names
    if (defaults.original_positions > 0 && s.scaling == RopeScaling::yarn) a.rope_scaling = RopeScaling::longrope;
    if (a.rope_scaling != RopeScaling::none) read_scaling(rope, main, a, original);
    if (const auto done = rope.finish(); !done) c.complain(key, done.error().message);
  }
  a.rope_theta = s.theta;
  a.rotary_fraction = s.fraction;
  if (!defaults.partial && s.fraction != 1) c.complain("partial_rotary_factor", "this family turns whole heads");
}

// Press et al. 2021: powers of 2^(-8/n) for n = 2^k heads, and every second of the next series for the heads beyond.
std::vector<double> alibi_slopes(const Architecture& a) {
  std::vector<double> slopes;
  if (a.alibi == 0) return slopes;
  const auto power = static_cast<Index>(std::bit_floor(static_cast<std::uint64_t>(a.heads)));
  for (Index h = 0; h < a.heads; ++h) {
    const double n = static_cast<double>(h < power ? power : 2 * power);
    const double k = static_cast<double>(h < power ? h + 1 : 2 * (h - power) + 1);
    slopes.push_back(a.alibi * std::exp2(-8 * k / n));
  }
  return slopes;
}

}  // namespace stepzero
