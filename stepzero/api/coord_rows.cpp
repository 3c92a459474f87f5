#include "stepzero/api/coord_rows.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "stepzero/api/transfer.hpp"
#include "stepzero/graph/graph.hpp"

namespace stepzero {

namespace {

std::string kind_name(const Param& p) {
  const std::string number = fmt::format(".{}.", p.layer);
  const std::size_t at = p.layer < 0 ? std::string::npos : p.name.find(number);
  return at == std::string::npos ? p.name : p.name.substr(0, at) + ".*." + p.name.substr(at + number.size());
}

double value_of(const Value& v) { return v.measured.value_or(v.predicted.value_or(std::nan(""))); }

CoordRow range(CoordRow row, double low, double high) {
  row.low = low, row.high = high;
  row.expected = 0 < low ? low : 0 > high ? high : 0;
  return row;
}

std::size_t logits_of(const Signal& s) {
  const std::string& name = s.steps.front().wires[s.steps.front().logits].name;
  return static_cast<std::size_t>(std::ranges::find(s.nodes, name, &NodeSignal::name) - s.nodes.begin());
}

}  // namespace

double CoordRows::Pool::root() const { return std::sqrt(squares / count); }

CoordRows::CoordRows(const CoordRequest& r, std::size_t points) : request_(r), points_(points), width_(!r.widths.empty()) {
  if (const auto p = parse_parametrization(r.parametrization)) parametrization_ = *p, carried_ = true;
  alpha_ = carried_ ? depth_exponent(parametrization_) : 0;
}

void CoordRows::add(std::size_t point, const CoordPoint& at, const OptimizerOptions& options, const Signal& s) {
  starts(at, s);
  tables(at, s);
  settings(at, options, s);
  for (std::size_t t = 0; t < s.steps.size(); ++t) step(at, s.steps[t], static_cast<int>(t) + 1);
  for (auto& [key, pool] : pools_) rows_[key].draws[point].push_back(pool.root());
  pools_.clear();
}

std::vector<CoordRow> CoordRows::take() {
  std::vector<CoordRow> out;
  for (const std::size_t key : order_) {
    const CoordRow& r = rows_.at(key);
    const std::size_t draws = r.draws[0].size();
    if (draws > 0 && std::ranges::all_of(r.draws, [&](const auto& d) { return d.size() == draws; })) out.push_back(r);
  }
  return out;
}

void CoordRows::starts(const CoordPoint& at, const Signal& s) {
  const std::string last = fmt::format("stream.{}", at.architecture.layers);
  for (const NodeSignal& n : s.nodes) {
    const double size = std::sqrt(value_of(n.forward.second_moment));
    const Place place = place_of(n.name);
    if (n.name == "stream.0") pool({.quantity = CoordQuantity::start, .what = "stream.0"}, size);
    if (n.name == last) pool(range(CoordRow{.quantity = CoordQuantity::start, .what = "stream at the end"}, 0, width_ ? 0 : 0.5), size);
    if (place.layer >= 0 && n.kind == "linear" && (width_ || alpha_ > 0))
      pool(range({.quantity = CoordQuantity::start, .what = "blocks.*." + place.part}, width_ ? 0 : -1, 0), size);
  }
  const NodeSignal& logits = s.nodes[logits_of(s)];
  CoordRow row{.quantity = CoordQuantity::start, .what = "logits", .zero = request_.zero_output && !at.architecture.tied};
  pool(range(row, -0.5, width_ ? 0 : 0.5), std::sqrt(value_of(logits.forward.second_moment)));
  for (const AttentionSignal& a : s.attention) {
    CoordRow scores{.quantity = CoordQuantity::start, .what = "scores", .zero = request_.zero_query};
    // of heads that grow, random queries and keys give scores that fall as the root where they are divided by head_dim
    const double grown = request_.grow_heads ? -0.5 : 0;
    pool(range(scores, grown, grown), std::sqrt(value_of(a.score_variance)));
  }
}

// The rows of a table are as large at every width.
void CoordRows::tables(const CoordPoint& at, const Signal& s) {
  for (std::size_t i = 0; i < at.graph.params.size(); ++i) {
    const Param& p = at.graph.params[i];
    if (kind_of_tensor(p) == TensorKind::input)
      pool({.quantity = CoordQuantity::start, .what = kind_name(p) + ", rows", .role = p.role}, value_of(s.parameters[i].std));
  }
}

// rate * decay, and eps over the gradient, of the tensors that have them
void CoordRows::settings(const CoordPoint& at, const OptimizerOptions& options, const Signal& s) {
  const std::vector<BaseUpdate> updates = updates_of(at.graph, options, at.rates);
  for (std::size_t i = 0; i < updates.size(); ++i) {
    const Param& p = at.graph.params[i];
    const BaseUpdate& u = updates[i];
    if (p.role == Role::bias || p.frozen) continue;
    const std::string name = kind_name(p);
    if (u.decay > 0) {
      const double low = width_ ? 0 : std::min(0.0, alpha_ - 1);
      pool(range(CoordRow{.quantity = CoordQuantity::setting, .what = name + ", decay", .role = p.role}, low, 0), u.rate * u.decay);
    }
    const double norm = value_of(s.parameters[i].gradient_norm);
    if (u.rule != UpdateRule::adam || !(norm > 0) || u.eps == 0) continue;
    constexpr double swallowed = 0.03;  // what eps may take of an update
    const double size = norm / std::sqrt(static_cast<double>(p.size()));
    pool({.quantity = CoordQuantity::setting, .what = name + ", eps", .role = p.role, .harmless = swallowed}, u.eps / size);
  }
}

void CoordRows::step(const CoordPoint& at, const StepSignal& s, int t) {
  const Index layers = at.architecture.layers;
  const std::string middle = fmt::format("stream.{}", (layers + 1) / 2), end = fmt::format("stream.{}", layers);
  for (const StepSignal::Wire& w : s.wires) {
    if (w.name == middle) pool({.quantity = CoordQuantity::change, .what = "stream in the middle", .step = t}, value_of(w.change));
    if (w.name == end) pool({.quantity = CoordQuantity::change, .what = "stream at the end", .step = t}, value_of(w.change));
  }
  // where the head does not begin at 0, its old weights read the changed stream, which falls as 1 / sqrt(width)
  const bool aligned = carried_ && parametrization_ == Parametrization::aligned;  // its head has no multiplier: they rise so
  const double most = width_ && aligned ? 0.5 : 0;
  const double least = width_ && !(request_.zero_output && !at.architecture.tied) ? -0.5 : 0;
  pool(range({.quantity = CoordQuantity::change, .what = "logits", .step = t}, least, most), value_of(s.wires[s.logits].change));
  for (const StepSignal::Scores& a : s.attention) {
    CoordRow row{.quantity = CoordQuantity::change, .what = "scores", .step = t};
    pool(range(row, request_.grow_heads ? -0.5 : width_ ? 0 : -1, 0), value_of(a.change));
  }
  for (std::size_t i = 0; i < s.parameters.size(); ++i) effect(at, i, value_of(s.parameters[i].direct_change), t);
}

void CoordRows::effect(const CoordPoint& at, std::size_t i, double x, int t) {
  const Param& p = at.graph.params[i];
  if (p.role == Role::bias || p.frozen) return;
  CoordRow row{.quantity = CoordQuantity::effect, .what = kind_name(p), .step = t, .role = p.role, .conv = p.conv && p.layer >= 0};
  const bool head = p.role == Role::head || (at.architecture.tied && p.role == Role::token_embedding);
  if (head) x *= at.architecture.logit_scale;
  const bool table = kind_of_tensor(p) == TensorKind::input;
  if (width_ && carried_ && parametrization_ == Parametrization::u_mup && table) return pool(range(row, -0.5, -0.5), x);
  // a key that more and more queries share gets a sum of gradients that do not add up at the start
  const bool shared = width_ && request_.keep_keys && p.role == Role::key;
  if (shared && request_.optimizer.name == "sgd") return pool(range(row, -0.5, 0), x);
  if (at.architecture.tied && head) return pool(range(row, -0.25, 0), x);  // two uses at once
  if (width_ || p.layer < 0) return pool(row, x);
  // over the depth: as the parametrization has it; where it has nothing, it may fall
  pool(alpha_ > 0 ? range(row, alpha_ - 1, alpha_ - 1) : range(row, -1, 0), x);
}

std::size_t CoordRows::key_of(const CoordRow& row) {
  const auto name = fmt::format("{} {} {}", static_cast<int>(row.quantity), row.step, row.what);
  const auto [it, fresh] = keys_.emplace(name, keys_.size());
  if (fresh) {
    rows_[it->second] = row;
    rows_[it->second].draws.resize(points_);
    order_.push_back(it->second);
  }
  return it->second;
}

}  // namespace stepzero
