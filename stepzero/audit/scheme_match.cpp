#include "stepzero/audit/scheme_match.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "stepzero/core/sort_few.hpp"
#include "stepzero/models/build.hpp"
#include "stepzero/theory/scheme_profile.hpp"

namespace stepzero {

namespace {

bool is_vector(Role role) { return role == Role::gain || role == Role::bias || role == Role::branch_gain; }

// The scheme's own graph must have the subject's tensors: norms taken away or gains added show.
std::string compare_graphs(const Subject& s, const Graph& graph) {
  std::map<std::string, const Param*> theirs;
  for (const Param& p : graph.params) theirs[p.name] = &p;
  for (const Param& p : s.graph.params) {
    const auto it = theirs.find(p.name);
    if (it == theirs.end() || it->second->shape != p.shape) return fmt::format("it has no tensor {}", p.name);
    theirs.erase(it);
  }
  return theirs.empty() ? "" : fmt::format("it needs a tensor {}", theirs.begin()->first);
}

// The same where the graph was guessed.
std::string compare_guess(const Subject& s, const Architecture& a) {
  const auto has = [&](Role role) { return std::ranges::any_of(s.graph.params, [&](const Param& p) { return p.role == role; }); };
  if (a.branch_gain != BranchGain::none && !has(Role::branch_gain)) return "it needs gains on the branches";
  if (a.norm == NormKind::none && has(Role::gain)) return "it has no norms";
  if (a.position != PositionKind::learned && has(Role::position_embedding)) return "it has no table of positions";
  if (a.sub_norm) return "it needs norms inside the branches";
  return "";
}

struct Candidate {
  Architecture a;
  Graph graph;
  std::string refused;
};

Candidate prepare(const Subject& s, const Scheme& scheme) {
  Candidate c{s.architecture, s.graph, {}};
  if (!s.known) {
    if (scheme.adapt != nullptr) {
      scheme.adapt(c.a);
      c.a.changes = {"what a configuration would show"};
    }
    c.refused = compare_guess(s, c.a);
    return c;
  }
  if (auto done = adapt(c.a, scheme, profile); !done) {
    c.refused = done.error().message;
    return c;
  }
  if (scheme.adapt != nullptr) c.graph = build_graph(c.a);
  c.refused = compare_graphs(s, c.graph);
  return c;
}

// The assignment in the subject's order of parameters.
Assignment reorder(const Subject& s, const Graph& graph, const Architecture& a, const Scheme& scheme) {
  Graph ordered;
  std::map<std::string, const Param*> theirs;
  for (const Param& p : graph.params) theirs[p.name] = &p;
  for (const Param& p : s.graph.params) ordered.params.push_back(*theirs.at(p.name));
  return {ordered, a, scheme};
}

Param part_as_param(const Param& p, const Assignment::Block& b, std::size_t blocks) {
  Param one = p;
  one.parts.clear();
  if (blocks == 1) return one;
  one.role = b.role;
  one.shape = {b.rows, b.cols};
  for (const Part& part : p.parts) {
    if (part.role == b.role) one.fan_out = part.fan_out;
  }
  return one;
}

void test_padding(const TensorCensus& census, std::size_t param, const Assignment& assignment, std::vector<Departure>& out) {
  if (assignment.zero_row(param) < 0 || !census.padding) return;
  const PieceCensus& row = census.pieces[*census.padding];
  if (row.summary.count == 0 || (row.summary.constant() && row.summary.min == 0)) return;
  out.push_back({param, row.role, Distribution::constant(0), {}, &find_mistake("padding-row-not-zero"), row.summary.std});
}

void test_param(const Subject& s, const TensorCensus& census, std::size_t i, const Scheme& scheme, SchemeMatch& match) {
  const Param& p = s.graph.params[i];
  const auto& blocks = match.assignment.blocks(i);
  std::set<Role> seen;
  for (const auto& b : blocks) {
    if (!seen.insert(b.role).second) continue;  // many blocks of one part have one law
    const PieceCensus piece = piece_of(census, p, b, blocks.size());
    Distribution law = b.distribution;
    if (!census.tensor->whole
             .empty()) {  // in a box the structure of the whole does not show; numbers of an orthogonal matrix are like normal ones
      using S = Distribution::Structure;
      if (law.structure != S::none && law.structure != S::orthogonal) continue;
      law.structure = S::none;
    }
    const Fit found = fit(law, piece, census.tensor->encoding);
    if (found.fits) continue;
    Departure d{i, b.role, b.distribution, found, nullptr, piece.summary.std};
    const Param part = part_as_param(p, b, blocks.size());
    for (const Suspicion& suspicion : suspicions({match.architecture, scheme, part, p, b.distribution})) {
      if (!fit(suspicion.law, piece, census.tensor->encoding).fits) continue;
      d.mistake = suspicion.mistake;
      break;
    }
    match.departures.push_back(d);
  }
  test_padding(census, i, match.assignment, match.departures);
}

// Few mistakes that explain everything are likelier than much that nothing explains.
double cost_of(const Subject& s, const SchemeMatch& m) {
  std::set<std::string> unexplained, explained;
  std::set<std::string_view> mistakes;
  for (const Departure& d : m.departures) {
    const std::string place = pattern_of(s.graph.params[d.param].name);
    if (d.mistake == nullptr) {
      unexplained.insert(place);
    } else {
      mistakes.insert(d.mistake->id);
      explained.insert(place);
    }
  }
  const double forward = m.changes.empty() ? (m.scheme->adapt != nullptr ? -0.02 : 0) : 0.5;
  return static_cast<double>(mistakes.size()) + 0.1 * static_cast<double>(explained.size()) + 3 * static_cast<double>(unexplained.size()) +
         forward + (m.by_part ? 0.01 : 0);
}

}  // namespace

std::string pattern_of(const std::string& name) {
  std::string out;
  bool digits = false;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const bool digit = name[i] >= '0' && name[i] <= '9';
    const bool starts = digit && !digits && i > 0 && name[i - 1] == '.';
    if (starts) {
      std::size_t end = i;
      while (end < name.size() && name[end] >= '0' && name[end] <= '9') ++end;
      if (end == name.size() || name[end] == '.') {
        out += '*';
        i = end - 1;
        continue;
      }
    }
    digits = digit;
    out += name[i];
  }
  return out;
}

std::string SchemeMatch::name() const { return std::string(scheme->name) + (by_part ? ", query, key and value one by one" : ""); }

PieceCensus piece_of(const TensorCensus& census, const Param& param, const Assignment::Block& block, std::size_t blocks) {
  if (blocks > 1) {
    for (PieceCensus p : census.pieces) {
      if (p.role != block.role) continue;
      p.scattered = std::ranges::count(param.parts, block.role, &Part::role) > 1;
      return p;
    }
  }
  if (census.pieces.size() == 1 || census.padding) return census.pieces.front();
  PieceCensus whole;
  whole.role = param.role;
  whole.rows = param.rows();
  whole.cols = param.cols();
  whole.summary = census.whole;
  return whole;
}

SchemeMatch match_scheme(const Subject& s, const CensusOf& census_of, const Scheme& given, bool by_part) {
  SchemeMatch match;
  match.scheme = &given;
  match.by_part = by_part;
  Scheme scheme = given;
  scheme.by_part = scheme.by_part || by_part;
  const auto run = [&] {
    Candidate c = prepare(s, scheme);
    match.refused = c.refused;
    match.architecture = c.a;
    match.changes = c.a.changes;
    match.departures.clear();
    match.tested = 0;
    if (!match.refused.empty()) return;
    match.assignment = reorder(s, c.graph, c.a, scheme);
    for (std::size_t i = 0; i < s.graph.params.size(); ++i) {
      const TensorCensus* const census = census_of[i];
      if (census == nullptr || !census->analysed || census->whole.nans + census->whole.infs > 0) continue;
      match.tested += is_vector(s.graph.params[i].role) ? 0 : 1;
      test_param(s, *census, i, scheme, match);
    }
  };
  // What a scheme learns from the model takes time: first see whether the rest could be its work.
  scheme.learn = nullptr;
  run();
  std::set<std::string> places;
  for (const Departure& d : match.departures) places.insert(pattern_of(s.graph.params[d.param].name));
  const bool learns = given.learn != nullptr && s.known && match.refused.empty();
  if (learns && !places.empty() && places.size() <= 2) {
    scheme.learn = given.learn;
    run();
  }
  match.cost = cost_of(s, match);
  return match;
}

std::vector<SchemeMatch> match_schemes(const Subject& s, const CensusOf& census_of) {
  const bool fused = std::ranges::any_of(s.graph.params, [](const Param& p) { return !p.parts.empty(); });
  std::vector<SchemeMatch> list;
  for (const Scheme& scheme : schemes()) {
    list.push_back(match_scheme(s, census_of, scheme));
    if (!fused || scheme.by_part) continue;
    SchemeMatch apart = match_scheme(s, census_of, scheme, true);
    if (!same_laws(s, list.back(), apart)) list.push_back(std::move(apart));
  }
  sort_few(list, [](const SchemeMatch& a, const SchemeMatch& b) {
    return std::pair(!a.refused.empty(), a.cost) < std::pair(!b.refused.empty(), b.cost);
  });
  return list;
}

bool same_laws(const Subject& s, const SchemeMatch& a, const SchemeMatch& b) {
  if (!a.refused.empty() || !b.refused.empty()) return false;
  // A cut that no number of a file would reach is none.
  const auto plain = [](Distribution d) {
    if (d.kind == Distribution::Kind::truncated_normal && d.cut > 8) d = Distribution::normal(d.scale, d.mean);
    return d;
  };
  for (std::size_t i = 0; i < s.graph.params.size(); ++i) {
    for (const auto& x : a.assignment.blocks(i)) {
      for (const auto& y : b.assignment.blocks(i)) {
        const bool meet = x.row0 < y.row0 + y.rows && y.row0 < x.row0 + x.rows && x.col0 < y.col0 + y.cols && y.col0 < x.col0 + x.cols;
        if (!meet) continue;
        const Distribution p = plain(x.distribution), q = plain(y.distribution);
        const bool close = p.kind == q.kind && p.structure == q.structure && p.cut == q.cut && std::abs(p.mean - q.mean) <= 1e-12 &&
                           std::abs(p.scale - q.scale) <= 1e-9 * std::abs(p.scale);
        if (!close) return false;
      }
    }
    if (a.assignment.zero_row(i) != b.assignment.zero_row(i)) return false;
  }
  return true;
}

}  // namespace stepzero
