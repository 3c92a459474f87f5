#include "stepzero/report/remedies.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/report/diagnosis.hpp"
#include "stepzero/report/terminal_style.hpp"

namespace stepzero {

namespace {

constexpr double little = 0.1;        // a number that is worse by less than this, as a logarithm, is not worse
constexpr std::size_t most_sure = 4;  // candidates of one finding that are predicted in full

const Finding* find(std::span<const Finding> list, const std::string& id) {
  const auto it = std::ranges::find(list, id, &Finding::id);
  return it == list.end() ? nullptr : &*it;
}

// Models with two stacks have a finding of each.
int stack_of(const Finding& f) { return f.where.starts_with("encoder.") ? 1 : f.where.starts_with("decoder.") ? 2 : 0; }

const Finding* find_same(std::span<const Finding> list, const Finding& f) {
  const auto it = std::ranges::find_if(list, [&](const Finding& g) { return g.id == f.id && stack_of(g) == stack_of(f); });
  return it == list.end() ? nullptr : &*it;
}

double worst_of(std::span<const Finding> list, const std::string& id) {
  double worst = -1e300;
  for (const Finding& f : list) {
    if (f.id == id) worst = std::max(worst, f.reading.beyond);
  }
  return worst;
}

// A signal as it is judged: what was found, and the number behind every check.
struct Judged {
  std::vector<Finding> found, all;
};

Judged judge(const Signal& s) { return {diagnose(s), readings(s)}; }

double reading_of(const Judged& judged, const Finding& f) {
  const Finding* const same = find_same(judged.all, f);
  return same != nullptr ? same->reading.value : std::numeric_limits<double>::quiet_NaN();
}

class Search {
 public:
  // A signal that is theory's alone needs not be predicted again.
  Search(const Trials& trials, const Signal& signal) : trials_(trials) {
    if (!signal.loss.measured) made_["sure "] = judge(signal);
  }

  // Null: the model cannot be made so.
  const Judged* at(const Change& change, bool quick) {
    const auto key = (quick && trials_.quicker ? "quick " : "sure ") + change.flags();
    auto it = made_.find(key);
    if (it == made_.end()) {
      const auto signal = trials_.predict(change, quick && trials_.quicker);
      it = made_.emplace(key, signal ? std::optional(judge(*signal)) : std::nullopt).first;
    }
    return it->second ? &*it->second : nullptr;
  }

  void fill(const Signal& signal, Finding& f, std::size_t most) {
    const Judged *rough = at({}, true), *before = at({}, false);
    if (rough == nullptr || before == nullptr) return;
    const Finding* const base = find_same(before->found, f);
    if (base == nullptr) return;  // measured, and not what the theory says
    const Finding* const seen = find_same(rough->found, f);
    std::size_t sure = 0;
    for (const Change& change : candidates(signal, f)) {
      if (f.remedies.size() == most || sure == most_sure) break;
      const Judged* const first = at(change, true);
      if (first == nullptr) continue;
      bool helps = seen == nullptr || removes(*seen, rough->found, first->found);
      if (helps) {
        ++sure;
        const Judged* const after = at(change, false);
        helps = after != nullptr && removes(*base, before->found, after->found);
        if (helps) f.remedies.push_back(remedy(change, *base, *before, *after));
      }
      if (!helps) f.tried.push_back(change.flags());
    }
  }

 private:
  Remedy remedy(const Change& change, const Finding& f, const Judged& before, const Judged& after) {
    Remedy r{change, trials_.command(change), f.reading.value, reading_of(after, f), {}};
    for (const Finding& g : after.found) {
      const bool already = find(before.found, g.id) != nullptr || std::ranges::find(r.brings, g.id) != r.brings.end();
      if (!already) r.brings.push_back(g.id);
    }
    return r;
  }

  const Trials& trials_;
  std::map<std::string, std::optional<Judged>> made_;
};

std::string words_of(const Finding& f) {
  std::vector<std::string> parts;
  for (const Remedy& r : f.remedies) parts.push_back(effect(f, r));
  std::string out = fmt::format("{}", fmt::join(parts, "; or "));
  if (f.remedies.empty() && !f.tried.empty())
    out = fmt::format("no single change found: {} leave it or bring what is as bad", fmt::join(f.tried, ", "));
  if (f.remedy.empty()) return out.empty() ? "none known" : out;
  return out.empty() ? f.remedy : f.remedy + "; " + out;
}

}  // namespace

bool removes(const Finding& finding, std::span<const Finding> before, std::span<const Finding> after) {
  if (find(after, finding.id) != nullptr) return false;
  return std::ranges::all_of(after, [&](const Finding& f) {
    if (f.severity < finding.severity) return true;
    const Finding* const was = find(before, f.id);
    return was != nullptr && f.severity <= was->severity && f.reading.beyond <= worst_of(before, f.id) + little;
  });
}

std::string effect(const Finding& f, const Remedy& r) {
  std::string out = r.change.flags();
  if (*f.reading.what != '\0' && std::isfinite(r.after))
    out += fmt::format(": {} {} to {}", f.reading.what, number(r.before), number(r.after));
  if (!r.brings.empty()) out += fmt::format(" (then {})", fmt::join(r.brings, ", "));
  return out;
}

void find_remedies(Signal& signal, const Trials& trials, Severity least, std::size_t most) {
  Search search(trials, signal);
  for (Finding& f : signal.findings) {
    if (f.severity < least) {
      if (f.remedy.empty()) f.remedy = "--full looks for a change that removes it";
      continue;
    }
    search.fill(signal, f, most);
    f.remedy = words_of(f);
  }
}

}  // namespace stepzero
