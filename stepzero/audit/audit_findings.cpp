#include "stepzero/audit/audit_findings.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/audit/std_names.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/weights/weights.hpp"

namespace stepzero {

namespace {

constexpr std::size_t kMostOfAKind = 20;  // findings of one kind that are told one by one

const Assignment::Block* block_of(const SchemeMatch* match, const TensorVerdict& v) {
  if (match == nullptr || !match->refused.empty() || !v.param) return nullptr;
  return &match->assignment.blocks(*v.param).front();
}

bool is_vector(const TensorCensus& c) { return c.tensor->shape.size() < 2; }

void add(Audit& audit, std::string id, Severity severity, std::string where, std::string evidence, std::string remedy) {
  const auto same = std::ranges::count(audit.findings, id, &Finding::id);
  if (std::cmp_less(same, kMostOfAKind)) {
    audit.findings.push_back({std::move(id), severity, std::move(where), std::move(evidence), std::move(remedy)});
  } else if (std::cmp_equal(same, kMostOfAKind)) {
    audit.findings.push_back(
        {std::move(id), severity, "model", "and more of this kind, which are not listed", "see --json for all tensors"});
  }
}

// ", the first at [3, 5]": of the numbers that are not finite, from 0.
std::string first_broken(const CheckpointFiles& files, const CheckpointTensor& t) {
  constexpr std::uint64_t step = std::uint64_t{1} << 20;
  std::vector<float> some(std::min(step, t.elements));
  for (std::uint64_t at = 0; at < t.elements; at += step) {
    const std::span<float> here = std::span(some).first(std::min(step, t.elements - at));
    if (!files.read_f32(t, at, here)) return "";
    const auto found = std::ranges::find_if(here, [](float x) { return !std::isfinite(x); });
    if (found == here.end()) continue;
    std::uint64_t index = at + static_cast<std::uint64_t>(found - here.begin());
    std::vector<std::uint64_t> place(t.shape.size());
    for (std::size_t i = t.shape.size(); i-- > 0; index /= t.shape[i]) place[i] = index % t.shape[i] + (t.at.empty() ? 0 : t.at[i]);
    return fmt::format(", the first {} at [{}] (from 0)", std::isnan(*found) ? "a NaN" : "infinite", fmt::join(place, ", "));
  }
  return "";
}

void find_lines(const TensorCensus& c, bool trained, Audit& audit) {
  const auto tell = [&](const Lines& lines, const char* what) {
    const Severity severity = trained ? Severity::note : Severity::warning;
    if (lines.dead > 0) {
      add(audit, fmt::format("dead-{}", what), severity, c.tensor->name,
          fmt::format("{} {} all zero, the first is {} (from 0)", lines.dead,
                      lines.dead == 1 ? fmt::format("{} is", what) : fmt::format("{}s are", what), lines.first_dead),
          "rows that never get a gradient stay so; at initialization nothing but padding should be zero");
    }
    if (lines.repeated > 0) {
      add(audit, fmt::format("repeated-{}", what), severity, c.tensor->name,
          fmt::format("{} {} another: {} is {} once more (from 0)", lines.repeated,
                      lines.repeated == 1 ? fmt::format("{} equals", what) : fmt::format("{}s equal", what), lines.first_repeated,
                      lines.first_original),
          "equal rows get equal gradients and stay equal; draw them apart");
    }
  };
  tell(c.rows, "row");
  tell(c.columns, "column");
}

}  // namespace

void find_broken_numbers(const CheckpointFiles& files, const SchemeMatch* match, Audit& audit) {
  for (const TensorVerdict& v : audit.tensors) {
    const TensorCensus& c = v.census;
    if (!c.analysed) continue;
    const Summary& s = c.whole;
    if (s.nans + s.infs > 0) {
      add(audit, "not-finite", Severity::error, c.tensor->name,
          fmt::format("{} NaN and {} infinite of {} numbers{}", s.nans, s.infs, s.nans + s.infs + s.count, first_broken(files, *c.tensor)),
          "a pass through it gives NaN; restore it from an earlier state");
    }
    const Assignment::Block* const block = block_of(match, v);
    const bool meant = block != nullptr && block->distribution.kind == Distribution::Kind::constant && block->distribution.mean == 0;
    const bool departs = block != nullptr && !meant;  // then the departure tells
    if (!is_vector(c) && s.constant() && s.min == 0 && !meant && !(departs && v.role)) {
      const Mistake& m = find_mistake("zero-tensor");
      add(audit, std::string(m.id), Severity::error, c.tensor->name, fmt::format("all {} numbers are 0", s.count), std::string(m.remedy));
    }
    if (s.count > 0 && s.subnormals * 2 > s.count) {
      add(audit, "subnormal", Severity::warning, c.tensor->name,
          fmt::format("{} of {} numbers are below the smallest normal number of {}", s.subnormals, s.count, c.tensor->encoding.name),
          "they have lost most of their digits; store the tensor in a wider type");
    }
    using S = Distribution::Structure;
    const S structure = block != nullptr ? block->distribution.structure : S::none;
    const bool shared = structure == S::mimetic || structure == S::ramp || structure == S::waves;  // by heads of a group; or not drawn
    if (s.constant() || is_vector(c) || shared) continue;
    TensorCensus shown = c;
    if (c.padding && c.pieces[*c.padding].summary.constant()) shown.rows.dead -= shown.rows.dead > 0 ? 1 : 0;
    find_lines(shown, audit.training == Training::trained || audit.training == Training::partly, audit);
  }
}

void find_structure(const Subject& s, Audit& audit) {
  for (const std::string& name : s.missing)
    add(audit, "missing-tensor", Severity::error, name, "the model has it, the checkpoint has not",
        "is this the config.json of these weights?");
  for (const auto& m : s.misfits)
    add(audit, "wrong-shape", Severity::error, m.name, fmt::format("shape {}, the model has {}", m.found, m.wanted),
        "is this the config.json of these weights?");
  for (const CheckpointTensor* t : s.others) {
    const bool misfit = std::ranges::find(s.misfits, t->name, &Subject::Misfit::name) != s.misfits.end();  // told already
    if (s.known && !misfit && !expected_extra(t->name, s.architecture.tied))
      add(audit, "unknown-tensor", Severity::note, t->name, "the model has no such tensor", "was the checkpoint written by another class?");
  }
  std::map<std::string, std::size_t> unread;
  for (const TensorVerdict& v : audit.tensors) {
    if (!v.census.analysed && v.census.tensor->elements > 0) ++unread[std::string(v.census.tensor->encoding.name)];
  }
  for (const auto& [type, count] : unread)
    add(audit, "not-analysed", Severity::note, "model", fmt::format("{} tensors of type {} were not analysed", count, type),
        "F32, F16, BF16, F64, Q8_0, Q4_0, Q4_K and Q6_K are");
}

void find_similar_tensors(const SchemeMatch* match, const std::vector<Similar>& pairs, Audit& audit) {
  for (const Similar& pair : pairs) {
    const TensorVerdict &a = audit.tensors[pair.first], &b = audit.tensors[pair.second];
    const Assignment::Block* const block = block_of(match, a);
    using S = Distribution::Structure;
    const S structure = block != nullptr ? block->distribution.structure : S::none;
    const bool meant = structure == S::mimetic || structure == S::diagonal || structure == S::ramp || structure == S::waves;
    const auto like_identity = [](const TensorVerdict& v) { return !v.laws.empty() && v.laws[0].kind == FoundLaw::Kind::identity_like; };
    if (meant || (like_identity(a) && like_identity(b))) continue;  // they share what they are near to
    const bool head = expected_extra(a.census.tensor->name, true) || expected_extra(b.census.tensor->name, true);
    const std::string where = fmt::format("{} and {}", a.census.tensor->name, b.census.tensor->name);
    if (pair.same_bits) {
      add(audit, head ? "tied-copy" : "copied-tensor", head ? Severity::note : Severity::error, where, "they hold the same bytes",
          head ? "a tied head need not be stored" : "draw them apart: equal matrices get equal gradients where their inputs are equal");
    } else {
      add(audit, "one-stream", Severity::error, where,
          fmt::format("their numbers have correlation {:.3f}; independent ones of this many have none beyond +-0.1", pair.correlation),
          "both were made from the same random numbers: give each tensor a seed of its own");
    }
  }
}

namespace {

struct Group {
  const Departure* first = nullptr;
  std::vector<const Departure*> all;
};

std::string law_text(const Distribution& d, const Architecture& a, const Param& p) {
  if (d.kind == Distribution::Kind::constant) return fmt::format("the constant {:.6g}", d.mean);
  const std::string formula = name_std(d.std(), 1e-6, a, p);
  const std::string value = fmt::format("{:.4g}", d.std());
  std::string out = "std " + (formula.empty() || formula == value ? value : formula + " = " + value);
  if (d.kind == Distribution::Kind::uniform) out += fmt::format(" (uniform within +-{:.4g})", d.scale);
  if (d.kind == Distribution::Kind::truncated_normal && d.cut < 8)
    out += fmt::format(" (cut at {:g} parent std, +-{:.4g})", d.cut, d.cut * d.scale);
  if (d.structure == Distribution::Structure::orthogonal) out += " (orthogonal)";
  return out;
}

std::string found_text(const Group& g, const TensorCensus& c) {
  double low = g.first->found_std, high = low;
  for (const Departure* d : g.all) {
    low = std::min(low, d->found_std);
    high = std::max(high, d->found_std);
  }
  const Summary& s = c.whole;
  if (s.constant()) return fmt::format("is constant, {:.6g}", s.min);
  std::string out =
      high - low < 0.03 * high ? fmt::format("has std {:.4g}", g.first->found_std) : fmt::format("has std {:.4g} to {:.4g}", low, high);
  if (g.first->expected.kind == Distribution::Kind::constant) return fmt::format("is not constant: {:.4g} to {:.4g}", s.min, s.max);
  if (g.first->fit.of_mean) out = fmt::format("has mean {:.4g}{}", s.mean, out.substr(3).insert(0, " and"));
  if (g.first->fit.impossible) out += fmt::format(" and reaches {:.4g}", s.largest());
  return out;
}

}  // namespace

void find_departures(const Subject& subject, const SchemeMatch& match, std::span<const std::string_view> only, Audit& audit) {
  std::map<std::string, Group> groups;
  for (const Departure& d : match.departures) {
    const std::string_view id = d.mistake == nullptr ? "departs-from-scheme" : d.mistake->id;
    if (!only.empty() && std::ranges::find(only, id) == only.end()) continue;
    const Param& p = subject.graph.params[d.param];
    const int part = d.mistake == nullptr ? static_cast<int>(d.role) : 0;  // a mistake made in several parts is one
    Group& g = groups[fmt::format("{} {} {}", pattern_of(p.name), part, id)];
    if (g.first == nullptr) g.first = &d;
    if (g.all.empty() || g.all.back()->param != d.param) g.all.push_back(&d);
  }
  for (const auto& [key, g] : groups) {
    const Departure& d = *g.first;
    const Param& p = subject.graph.params[d.param];
    const auto verdict = std::ranges::find_if(audit.tensors, [&](const TensorVerdict& v) { return v.param == d.param; });
    const std::string where = g.all.size() == 1 ? subject.tensor_of[d.param]->name : pattern_of(subject.tensor_of[d.param]->name);
    const bool padding = d.mistake != nullptr && d.mistake->id == "padding-row-not-zero";
    std::string evidence =
        padding ? fmt::format("row {} has std {:.4g}; {} keeps the row of padding zero", p.zero_row, d.found_std, match.scheme->name)
                : fmt::format("{}{}; {} assigns {}", found_text(g, verdict->census),
                              g.all.size() > 1 ? fmt::format(" in {} tensors", g.all.size()) : "", match.scheme->name,
                              (d.fit.of_mean ? fmt::format("mean {:.4g} and ", d.expected.mean) : "") +
                                  law_text(d.expected, match.architecture, p));
    if (d.mistake != nullptr && !padding) evidence += fmt::format(": as if {}", d.mistake->meaning);
    if (d.mistake == nullptr && !d.fit.impossible)
      evidence +=
          fmt::format("; the {} is {:.1f} standard errors off, p {:.1e}", d.fit.of_mean ? "mean" : "std", std::abs(d.fit.z), d.fit.p);
    const bool zero = d.mistake != nullptr && d.mistake->id == "zero-tensor";
    add(audit, d.mistake == nullptr ? "departs-from-scheme" : std::string(d.mistake->id), zero ? Severity::error : Severity::warning, where,
        evidence,
        d.mistake == nullptr ? fmt::format("if {} was meant, draw it again; if not, name the scheme with --scheme", match.scheme->name)
                             : std::string(d.mistake->remedy));
  }
}

}  // namespace stepzero
