#include "stepzero/audit/audit.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/audit/audit_findings.hpp"
#include "stepzero/audit/std_names.hpp"
#include "stepzero/graph/sources.hpp"
#include "stepzero/models/build.hpp"
#include "stepzero/models/make_input.hpp"
#include "stepzero/theory/predict.hpp"

namespace stepzero {

namespace {

bool is_matrix(const TensorVerdict& v) { return v.census.analysed && v.census.tensor->shape.size() >= 2 && !v.census.whole.constant(); }

void judge_tensors(const Subject& subject, std::vector<TensorCensus> censuses, Audit& out) {
  std::map<const CheckpointTensor*, std::size_t> param_of;
  for (std::size_t i = 0; i < subject.tensor_of.size(); ++i) {
    if (subject.tensor_of[i] != nullptr) param_of[subject.tensor_of[i]] = i;
  }
  for (TensorCensus& c : censuses) {
    TensorVerdict v;
    if (const auto it = param_of.find(c.tensor); it != param_of.end()) {
      const Param& p = subject.graph.params[it->second];
      v.param = it->second;
      v.role = p.role;
      v.layer = p.layer;
      const double n = static_cast<double>(std::max<std::uint64_t>(c.whole.count, 1));
      if (c.analysed && !c.whole.constant())
        v.formula = name_std(c.whole.std, std::max(2.5 / std::sqrt(2 * n), 2e-4), subject.architecture, p);
    }
    for (const PieceCensus& p : c.pieces) v.laws.push_back(out.moments_only ? FoundLaw{} : find_law(p, c.tensor->encoding));
    v.census = std::move(c);
    out.tensors.push_back(std::move(v));
  }
}

// Matrices that no simple law explains, and gains that are no longer constant, have been trained.
Training judge_training(const Audit& a) {
  double matrices = 0, odd = 0, gains = 0, moved = 0;
  for (const TensorVerdict& v : a.tensors) {
    const TensorCensus& c = v.census;
    if (!c.analysed || c.tensor->encoding.quantised() || v.laws.empty()) continue;
    if (is_matrix(v) && c.whole.count >= 1024) {
      ++matrices;
      odd += v.laws[0].kind == FoundLaw::Kind::unknown ? 1 : 0;
    }
    if (v.role == Role::gain && c.whole.count >= 8) {
      ++gains;
      moved += c.whole.constant() ? 0 : 1;
    }
  }
  if (matrices == 0 || a.moments_only) return Training::unknown;
  const double share = odd / matrices;
  if (share >= 0.5) return Training::trained;
  return share >= 0.15 || (gains > 0 && moved / gains >= 0.5) ? Training::partly : Training::at_init;
}

std::string reason_of(const Subject& s, const SchemeMatch& best, const SchemeMatch& other) {
  const std::string forward =
      other.changes.empty() ? "" : fmt::format("; it would also set {}, which weights do not show", fmt::join(other.changes, ", "));
  if (same_laws(s, best, other)) return "assigns the same law to every tensor of this model" + forward;
  return "differs by less than these numbers can tell" + forward;
}

void note_expected(const Subject& s, const SchemeMatch& match, Audit& out) {
  for (TensorVerdict& v : out.tensors) {
    if (!v.param || !v.census.analysed) continue;
    const std::size_t i = *v.param;
    const auto& blocks = match.assignment.blocks(i);
    v.expected_std = match.assignment.std(i);
    v.expected = blocks[0].distribution.kind == Distribution::Kind::constant ? fmt::format("constant {:.6g}", blocks[0].distribution.mean)
                                                                             : fmt::format("std {:.4g}", v.expected_std);
    v.fit = fit(blocks[0].distribution, piece_of(v.census, s.graph.params[i], blocks[0], blocks.size()), v.census.tensor->encoding);
    v.departs = std::ranges::any_of(match.departures, [&](const Departure& d) { return d.param == i; });
  }
}

// What the family's own class would have done: its scaling by depth and its row of padding are left out so often that they
// are told even where another scheme would explain the file.
void look_home(const Subject& s, const SchemeMatch& best, const std::vector<SchemeMatch>& all, Audit& out) {
  const auto home = std::ranges::find_if(all, [](const SchemeMatch& m) { return m.scheme->name == "hf" && !m.by_part; });
  const bool configured = best.follows() && best.scheme->adapt != nullptr && best.changes.empty();  // the model is made for it
  if (home == all.end() || !home->refused.empty() || home->departures.empty() || home->scheme == best.scheme || configured) return;
  constexpr std::array<std::string_view, 2> told = {"skipped-depth-scaling", "padding-row-not-zero"};
  const bool only = std::ranges::all_of(
      home->departures, [&](const Departure& d) { return d.mistake != nullptr && std::ranges::find(told, d.mistake->id) != told.end(); });
  if (only) find_departures(s, *home, told, out);
}

// Schemes that have a known mistake built in.
void look_for_traps(const Subject& s, const SchemeMatch& best, const CensusOf& census_of, Audit& out) {
  const auto against = [&](const char* scheme, std::string_view mistake) {
    const SchemeMatch right = match_scheme(s, census_of, **find_scheme(scheme), false);
    if (right.refused.empty()) find_departures(s, right, std::array{mistake}, out);
  };
  if (best.scheme->name == "torchtitan-llama") against("llama-depth", "depth-scaling-on-up-projection");
}

// The scheme it follows, or comes nearest to. Null: none comes near.
std::optional<SchemeMatch> identify(const Subject& s, const CensusOf& census_of, const AuditOptions& options, Audit& out) {
  std::vector<SchemeMatch> all = match_schemes(s, census_of);
  const SchemeMatch& best = all.front();
  const bool near = best.refused.empty() && best.tested > 0 && 2 * best.departures.size() <= best.tested + 2;
  const bool explained = best.refused.empty() && best.tested > 0 &&
                         std::ranges::all_of(best.departures, [](const Departure& d) { return d.mistake != nullptr; });
  if (near || explained) out.scheme = best.name();
  for (const SchemeMatch& other : all) {
    if (!best.follows() || &other == &best || !other.follows()) continue;
    out.others.push_back({other.name(), reason_of(s, best, other)});
  }
  if (options.scheme != nullptr) {
    const auto asked = std::ranges::find_if(all, [&](const SchemeMatch& m) { return m.scheme == options.scheme && !m.by_part; });
    return *asked;
  }
  if (out.scheme.empty()) return std::nullopt;
  if (out.training == Training::trained) return std::nullopt;
  look_home(s, best, all, out);
  look_for_traps(s, best, census_of, out);
  return best;
}

// Both predicted: the scheme's laws, and those of the numbers in the file.
void predict_consequences(const Subject& s, const SchemeMatch& match, const CensusOf& census_of, Audit& out) {
  const Architecture& a = s.architecture;
  const bool broken =
      std::ranges::any_of(census_of, [](const TensorCensus* c) { return c != nullptr && c->whole.nans + c->whole.infs > 0; });
  if (!s.missing.empty() || !s.misfits.empty() || broken) return;
  if (std::ranges::any_of(census_of, [](const TensorCensus* c) { return c != nullptr && !c->tensor->whole.empty(); })) return;
  const Graph running = build_graph(a);
  if (!check_sources(running)) return;  // no theory of it
  constexpr Index tokens = 128;
  const auto batch = make_input(a, {.length = a.image > 0 ? 0 : std::min(tokens, a.positions), .sequences = 1});
  if (!batch) return;
  const Assignment found(running, a, [&](std::size_t i, const Part* part) {
    const TensorCensus* const c = census_of[i];
    if (c == nullptr || !c->analysed) return match.assignment.blocks(i).front().distribution;
    const Summary* summary = &c->whole;
    for (const PieceCensus& p : c->pieces) {
      if (part != nullptr && p.role == part->role) summary = &p.summary;
    }
    return summary->constant() ? Distribution::constant(summary->min) : Distribution::normal(summary->std, summary->mean);
  });
  out.found_signal = predict(running, a, *batch, found, "the file");
  out.intended_signal = predict(running, a, *batch, match.assignment, std::string(match.scheme->name));
}

Expected<BaselineRow> compare_tensors(const CheckpointFiles& files, const TensorCensus& a, const CheckpointFiles& other,
                                      const TensorCensus& b) {
  BaselineRow row{a.tensor->name, "", 0, a.whole.std, b.whole.std};
  const auto same = same_bytes(files, *a.tensor, other, *b.tensor);
  if (!same) return std::unexpected(same.error());
  if (*same) return row;
  row.correlation = correlation(a.sample, b.sample, a.sample.size());
  const double n = static_cast<double>(std::max<std::uint64_t>(1, std::min(a.whole.count, b.whole.count)));
  const double error = std::max(a.whole.std, b.whole.std) / std::sqrt(n);
  const bool other_law =
      std::abs(a.whole.std - b.whole.std) > kTooManyErrors * error || std::abs(a.whole.mean - b.whole.mean) > kTooManyErrors * error;
  if (a.tensor->shape != b.tensor->shape)
    row.difference = "another shape";
  else if (a.tensor->encoding.name != b.tensor->encoding.name)
    row.difference = fmt::format("{} here, {} there", a.tensor->encoding.name, b.tensor->encoding.name);
  else
    row.difference = row.correlation > 0.5 ? "the same numbers, moved" : other_law ? "another law" : "other numbers of the same law";
  return row;
}

Expected<void> compare_baseline(const CheckpointFiles& files, const CheckpointFiles& other, const Audit& mine,
                                std::vector<BaselineRow>& rows) {
  const Subject subject = make_subject(other, std::nullopt);
  const auto list = take_census(other, subject.tensors(), subject.layouts(), {}, {});
  if (!list) return std::unexpected(list.error());
  std::map<std::string, const TensorCensus*> theirs;
  for (const TensorCensus& c : *list) theirs[c.tensor->name] = &c;
  for (const TensorVerdict& v : mine.tensors) {
    const TensorCensus& a = v.census;
    const auto it = theirs.find(a.tensor->name);
    if (it == theirs.end()) {
      rows.push_back({a.tensor->name, "only in this one", 0, a.whole.std, 0});
      continue;
    }
    auto row = compare_tensors(files, a, other, *it->second);
    if (!row) return std::unexpected(row.error());
    rows.push_back(std::move(*row));
    theirs.erase(it);
  }
  for (const auto& [name, census] : theirs) rows.push_back({name, "only in the baseline", 0, 0, census->whole.std});
  return {};
}

}  // namespace

const char* to_string(Training t) {
  switch (t) {
    case Training::at_init:
      return "at initialization";
    case Training::partly:
      return "partly trained";
    case Training::trained:
      return "trained";
    case Training::unknown:
      break;
  }
  return "unknown";
}

namespace {

// The scheme, what departs from it, and what follows.
std::optional<SchemeMatch> judge_scheme(const Subject& subject, const AuditOptions& options, Audit& out) {
  CensusOf census_of(subject.tensor_of.size());
  for (const TensorVerdict& v : out.tensors) {
    if (v.param) census_of[*v.param] = &v.census;
  }
  std::optional<SchemeMatch> match = identify(subject, census_of, options, out);
  if (!match) return match;
  out.intended = match->name();
  if (!match->refused.empty()) {
    out.findings.push_back({"other-tensors", Severity::error, "model", fmt::format("scheme {}: {}", match->scheme->name, match->refused),
                            "the scheme belongs to another form of the model"});
    return match;
  }
  note_expected(subject, *match, out);
  find_departures(subject, *match, {}, out);
  if (subject.known && options.consequences) predict_consequences(subject, *match, census_of, out);
  return match;
}

}  // namespace

Expected<Audit> audit(const CheckpointFiles& files, const AuditOptions& options) {
  const Subject subject = make_subject(files, options.model);
  auto list = take_census(files, subject.tensors(), subject.layouts(), {.moments_only = options.moments_only}, options.progress);
  if (!list) return std::unexpected(list.error());
  const auto similar = options.moments_only ? std::vector<Similar>() : find_similar(files, *list);
  if (!similar) return std::unexpected(similar.error());
  Audit out;
  out.path = files.path();
  out.bytes = files.bytes();
  out.warnings = files.warnings();
  out.architecture = subject.architecture;
  out.known = subject.known;
  out.moments_only = options.moments_only;
  out.asked = options.scheme != nullptr;
  judge_tensors(subject, std::move(*list), out);
  out.training = judge_training(out);
  std::optional<SchemeMatch> match;
  if (!options.moments_only && !subject.graph.params.empty()) match = judge_scheme(subject, options, out);
  const SchemeMatch* const held_against = match ? &*match : nullptr;
  find_structure(subject, out);
  find_broken_numbers(files, held_against, out);
  find_similar_tensors(held_against, *similar, out);
  if (options.baseline != nullptr) {
    if (auto done = compare_baseline(files, *options.baseline, out, out.baseline); !done) return std::unexpected(done.error());
  }
  worst_first(out.findings);
  return out;
}

}  // namespace stepzero
