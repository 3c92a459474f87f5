#include "stepzero/solve/objective.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/core/text.hpp"

namespace stepzero::solve {

std::span<const Objective> objectives() {
  static const std::vector<Objective> all = {flat_objective(), depth_objective(), update_objective(), tangent_objective(),
                                             range_objective()};
  return all;
}

namespace {

std::string names() {
  std::vector<std::string> out;
  for (const Objective& o : objectives()) out.emplace_back(o.name);
  return fmt::format("{}", fmt::join(out, ", "));
}

std::optional<double> number(std::string_view text) {
  double x = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(x)) return {};
  return x;
}

// A setting's value: a number, or the name of a format.
std::optional<double> setting_of(std::string_view key, std::string_view value) {
  if (key != "format") return number(value);
  const auto formats = number_formats();
  const auto it = std::ranges::find(formats, value, [](const NumberFormat& f) { return std::string_view(f.name); });
  if (it == formats.end()) return {};
  return static_cast<double>(it - formats.begin());
}

Expected<void> tell(std::vector<Weighted>& list, const std::string& text) {
  const auto equals = std::min(text.find('='), text.size());
  const std::string key = text.substr(0, equals);
  std::vector<std::string> known;
  bool found = false;
  for (Weighted& w : list) {
    for (const Objective::Setting& s : w.objective->settings) {
      known.emplace_back(s.name);
      if (s.name != key) continue;
      const auto value = setting_of(key, equals < text.size() ? std::string_view(text).substr(equals + 1) : "");
      const bool may_be_zero = key == "format" || key == "change" || key == "even";
      if (!value || *value < 0 || (*value == 0 && !may_be_zero))
        return fail(fmt::format("--target {}: no value of {}", show(text), key), fmt::format("{}: {}", s.name, s.words));
      w.settings[key] = *value;
      found = true;
    }
  }
  if (!found) return fail(fmt::format("--target {}: no such target", show(text)), fmt::format("they are {}", fmt::join(known, ", ")));
  return {};
}

}  // namespace

Expected<const Objective*> find_objective(std::string_view name) {
  const auto all = objectives();
  const auto it = std::ranges::find(all, name, [](const Objective& o) { return std::string_view(o.name); });
  if (it != all.end()) return &*it;
  return fail(fmt::format("no objective is called \"{}\"", show(std::string(name))), fmt::format("they are {}", names()));
}

Expected<std::vector<Weighted>> parse_objective(std::string_view text, const std::vector<std::string>& told) {
  std::vector<Weighted> out;
  while (true) {
    const auto plus = std::min(text.find('+'), text.size());
    std::string_view one = text.substr(0, plus);
    Weighted w;
    if (const auto times = one.find('*'); times != std::string_view::npos) {
      const auto weight = number(one.substr(0, times));
      if (!weight || !(*weight > 0))
        return fail(fmt::format("--objective: \"{}\" is no weight", show(std::string(one))), "for example flat+0.5*depth");
      w.weight = *weight;
      one = one.substr(times + 1);
    }
    const auto found = find_objective(one);
    if (!found) return std::unexpected(found.error());
    w.objective = *found;
    for (const Objective::Setting& s : w.objective->settings) w.settings[s.name] = s.value;
    out.push_back(std::move(w));
    if (plus == text.size()) break;
    text = text.substr(plus + 1);
  }
  for (const std::string& t : told) {
    if (auto done = tell(out, t); !done) return std::unexpected(done.error());
  }
  return out;
}

std::vector<Target> targets_of(std::span<const Weighted> list, const Readout& reading) {
  std::vector<Target> out;
  for (const Weighted& w : list) {
    for (Target t : w.objective->targets(reading, w.settings)) {
      t.weight *= std::sqrt(w.weight);
      out.push_back(std::move(t));
    }
  }
  settle_levels(out);
  return out;
}

}  // namespace stepzero::solve
