#include "stepzero/audit/mistakes.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "stepzero/core/error.hpp"
#include "stepzero/schemes/rules.hpp"

namespace stepzero {

namespace {

constexpr std::array kMistakes = std::to_array<Mistake>({
    {"zero-tensor", "it had never been initialized: every number is 0",
     "initialize it; a matrix of zeros passes no gradient to what lies before it"},
    {"skipped-depth-scaling", "the scaling by depth had been left out",
     "divide the matrices that write to the stream by the factor the scheme asks for"},
    {"scaled-twice", "the scaling by depth had been applied twice",
     "apply the factor once: a second initialization pass, or a factor in the forward pass as well, repeats it"},
    {"depth-scaling-on-up-projection", "the up projection (w3) were scaled by depth",
     "scale the down projection (w2), which writes to the stream, and only that"},
    {"truncation-never-truncates", "the cut lay far outside: bounds given in absolute numbers, not in standard deviations",
     "give trunc_normal_ its bounds as multiples of std: a=-3*std, b=3*std"},
    {"fused-qkv-fan-out", "query, key and value together counted as one fan-out",
     "initialize query, key and value one by one: their fan-out is that of each alone"},
    {"bound-used-as-std", "the half-width of a uniform law had been used as a standard deviation", "divide the bound by sqrt(3)"},
    {"std-used-as-bound", "a standard deviation had been used as the half-width of a uniform law", "multiply the std by sqrt(3)"},
    {"fan-out-for-fan-in", "fan-out had been taken for fan-in", "look at how the matrix is stored: (in, out) or (out, in)"},
    {"variance-used-as-std", "the variance had been used as a standard deviation", "take the root"},
    {"padding-row-not-zero", "the row of padding had been drawn like the others",
     "set the row of the padding token to zero after drawing the table"},
});

Distribution scaled(Distribution d, double by) {
  d.scale *= by;
  d.diagonal *= by;
  return d;
}

// Factors by which schemes divide what writes to the stream, and whether this scheme does so here.
std::vector<double> depth_factors(const Assigned& at) {
  Param residual = at.param;
  residual.role = Role::ffn_out;
  const Distribution now = at.scheme.assign(at.a, residual);
  Architecture deeper = at.a;
  deeper.layers *= 4;
  Param later = residual;
  later.layer += 3;
  std::vector<double> list;
  if (at.param.layer < 0) return list;
  if (at.scheme.assign(deeper, residual) != now) list.push_back(std::sqrt(2 * static_cast<double>(at.a.layers)));
  if (at.scheme.assign(at.a, later) != now) list.push_back(std::sqrt(2 * static_cast<double>(at.param.layer + 1)));
  return list;
}

void add_depth(const Assigned& at, std::vector<Suspicion>& list) {
  const bool writes = writes_to_stream(at.param);
  for (const double factor : depth_factors(at)) {
    if (writes) list.push_back({&find_mistake("skipped-depth-scaling"), scaled(at.law, factor)});
    if (writes) list.push_back({&find_mistake("scaled-twice"), scaled(at.law, 1 / factor)});
    if (at.param.role == Role::ffn_in && at.a.gated)
      list.push_back({&find_mistake("depth-scaling-on-up-projection"), scaled(at.law, 1 / factor)});
  }
  if (!writes || at.param.layer < 0) return;
  Param inner = at.param;
  inner.role = at.a.gated ? Role::ffn_gate : Role::ffn_in;
  if (const Distribution d = at.scheme.assign(at.a, inner); d != at.law && !depth_factors(at).empty())
    list.push_back({&find_mistake("skipped-depth-scaling"), d});
}

void add_fans(const Assigned& at, std::vector<Suspicion>& list) {
  const bool projects =
      at.param.role == Role::query || at.param.role == Role::key || at.param.role == Role::value || at.param.role == Role::query_key_value;
  if (projects) {
    Param fused = at.param;
    fused.fan_out = (at.a.heads + 2 * at.a.kv_heads) * at.a.head_dim;
    list.push_back({&find_mistake("fused-qkv-fan-out"), at.scheme.assign(at.a, fused)});
  }
  Param turned = at.param;
  std::swap(turned.fan_in, turned.fan_out);
  if (turned.shape.size() >= 2) list.push_back({&find_mistake("fan-out-for-fan-in"), at.scheme.assign(at.a, turned)});
}

}  // namespace

const Mistake& find_mistake(std::string_view id) {
  const auto* found = std::ranges::find(kMistakes, id, &Mistake::id);
  STEPZERO_CHECK(found != kMistakes.end());
  return *found;
}

std::vector<Suspicion> suspicions(const Assigned& at) {
  using Kind = Distribution::Kind;
  std::vector<Suspicion> list;
  const Distribution& d = at.law;
  if (d.kind == Kind::constant) return list;
  list.push_back({&find_mistake("zero-tensor"), Distribution::constant(0)});
  if (d.structure != Distribution::Structure::none) return list;
  add_depth(at, list);
  if (d.kind == Kind::truncated_normal)
    list.push_back({&find_mistake("truncation-never-truncates"), Distribution::normal(d.scale, d.mean)});
  add_fans(at, list);
  list.push_back({&find_mistake("bound-used-as-std"), Distribution::normal(d.std() * std::sqrt(3.0), d.mean)});
  list.push_back({&find_mistake("std-used-as-bound"), Distribution::uniform(d.std(), d.mean)});
  list.push_back({&find_mistake("variance-used-as-std"), Distribution::normal(d.std() * d.std(), d.mean)});
  std::erase_if(list, [&](const Suspicion& s) { return s.law == d; });
  return list;
}

}  // namespace stepzero
