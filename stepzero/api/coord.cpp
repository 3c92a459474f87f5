#include "stepzero/api/coord.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/api/guarded.hpp"
#include "stepzero/api/setup.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/models/own_file.hpp"
#include "stepzero/pass/measure.hpp"
#include "stepzero/signal/coord.hpp"
#include "stepzero/theory/predict_step.hpp"

namespace stepzero {

namespace {

// ---- the axis

Index scaled(Index size, Index to, Index from) { return std::max<Index>(1, (size * to + from / 2) / from); }

Expected<std::vector<std::string>> at_width(const Architecture& a, Index width, const CoordRequest& r) {
  if (!a.stages.empty()) {  // the width is the channels of the first stage
    std::vector<Index> stages = a.stages, dense = a.dense;
    for (Index& n : stages) n = scaled(n, width, a.stages[0]);
    for (Index& n : dense) n = scaled(n, width, a.stages[0]);
    std::vector<std::string> set = {fmt::format("stages={}", fmt::join(stages, ","))};
    if (!dense.empty()) set.push_back(fmt::format("dense={}", fmt::join(dense, ",")));
    return set;
  }
  std::vector<std::string> set = {fmt::format("width={}", width)};
  const auto size = [&](const char* field, Index now) {
    const bool known = !a.own || !own_size(*a.own, field).empty();
    if (now > 0 && known) set.push_back(fmt::format("{}={}", field, now));
  };
  const Index heads = r.grow_heads ? a.heads : scaled(a.heads, width, a.width);
  if (r.grow_heads ? width % a.heads != 0
                   : width * a.heads % a.width != 0 || heads * a.head_dim * a.width != a.heads * a.head_dim * width) {
    return fail(r.grow_heads ? fmt::format("a width of {} is not shared by {} heads", width, a.heads)
                             : fmt::format("a width of {} does not hold whole heads of {}", width, a.head_dim),
                "widths are multiples of the head's size; --grow-heads keeps the number of heads instead");
  }
  size("heads", heads);
  size("head_dim", r.grow_heads ? scaled(a.head_dim, width, a.width) : a.head_dim);
  size("kv_heads", r.keep_keys || r.grow_heads ? a.kv_heads : scaled(a.kv_heads, width, a.width));
  size("ffn", scaled(a.ffn, width, a.width));
  if (a.experts > 0) size("expert_ffn", scaled(a.expert_ffn, width, a.width));
  if (a.embedding_width > 0) size("embedding_width", scaled(a.embedding_width, width, a.width));
  return set;
}

Expected<ModelRequest> at_point(const CoordRequest& r, const Architecture& a, Index value) {
  ModelRequest out = r.model;
  if (!r.depths.empty()) {
    out.set.push_back(fmt::format("layers={}", value));
    return out;
  }
  auto set = at_width(a, value, r);
  if (!set) return std::unexpected(set.error());
  out.set.insert(out.set.end(), set->begin(), set->end());
  return out;
}

Expected<CoordPoint> as_given(double value, const ModelRequest& model, const std::string& rates) {
  const auto scheme = find_scheme(model.scheme);
  if (!scheme) return std::unexpected(scheme.error());
  auto a = describe_model(model.model, model.set, **scheme, model.like);
  if (!a) return std::unexpected(a.error());
  auto graph = graph_of(*a, {});
  if (!graph) return std::unexpected(graph.error());
  auto table = rates.empty() ? Expected<RateTable>(RateTable()) : read_rates(rates, graph->params);
  if (!table) return std::unexpected(table.error());
  return CoordPoint{value, std::move(*a), std::move(*graph), *scheme, std::move(*table)};
}

// ---- rows

std::string kind_name(const Param& p) {
  const std::string number = fmt::format(".{}.", p.layer);
  const std::size_t at = p.layer < 0 ? std::string::npos : p.name.find(number);
  return at == std::string::npos ? p.name : p.name.substr(0, at) + ".*." + p.name.substr(at + number.size());
}

// Root mean squares over what bears one name.
struct Pool {
  double squares = 0;
  int count = 0;

  void add(double x) { squares += x * x, ++count; }
  [[nodiscard]] double root() const { return std::sqrt(squares / count); }
};

double value_of(const Value& v) { return v.measured.value_or(v.predicted.value_or(std::nan(""))); }

class Rows {
 public:
  Rows(const CoordRequest& r, std::size_t points) : request_(r), points_(points) {
    width_ = !r.widths.empty();
    if (const auto p = parse_parametrization(r.parametrization)) parametrization_ = *p, carried_ = true;
    alpha_ = carried_ ? depth_exponent(parametrization_) : 0;
  }

  // One draw of one point.
  void add(std::size_t point, const CoordPoint& at, const OptimizerOptions& options, const Signal& s) {
    starts(at, s);
    tables(at, s);
    settings(at, options, s);
    for (std::size_t t = 0; t < s.steps.size(); ++t) step(at, s.steps[t], static_cast<int>(t) + 1);
    for (auto& [key, pool] : pools_) rows_[key].draws[point].push_back(pool.root());
    pools_.clear();
  }

  std::vector<CoordRow> take() {
    std::vector<CoordRow> out;
    for (const std::size_t key : order_) {
      const CoordRow& r = rows_.at(key);
      const std::size_t draws = r.draws[0].size();
      if (draws > 0 && std::ranges::all_of(r.draws, [&](const auto& d) { return d.size() == draws; })) out.push_back(r);
    }
    return out;
  }

 private:
  void starts(const CoordPoint& at, const Signal& s) {
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
  void tables(const CoordPoint& at, const Signal& s) {
    for (std::size_t i = 0; i < at.graph.params.size(); ++i) {
      const Param& p = at.graph.params[i];
      if (kind_of_tensor(p) == TensorKind::input)
        pool({.quantity = CoordQuantity::start, .what = kind_name(p) + ", rows", .role = p.role}, value_of(s.parameters[i].std));
    }
  }

  // rate * decay, and eps over the gradient, of the tensors that have them
  void settings(const CoordPoint& at, const OptimizerOptions& options, const Signal& s) {
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

  void step(const CoordPoint& at, const StepSignal& s, int t) {
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

  void effect(const CoordPoint& at, std::size_t i, double x, int t) {
    const Param& p = at.graph.params[i];
    if (p.role == Role::bias || p.frozen) return;
    CoordRow row{.quantity = CoordQuantity::effect, .what = kind_name(p), .step = t, .role = p.role, .conv = p.conv && p.layer >= 0};
    const bool head = p.role == Role::head || (at.architecture.tied && p.role == Role::token_embedding);
    if (head) x *= at.architecture.logit_scale;
    const bool table = kind_of_tensor(p) == TensorKind::input;
    if (width_ && carried_ && parametrization_ == Parametrization::u_mup && table) return pool(range(row, -0.5, -0.5), x);
    // a key that more and more queries share gets a sum of gradients that do not add up at the start
    const bool shared = width_ && request_.keep_keys && p.role == Role::key;
    if (shared && request_.options.name == "sgd") return pool(range(row, -0.5, 0), x);
    if (at.architecture.tied && head) return pool(range(row, -0.25, 0), x);  // two uses at once
    if (width_ || p.layer < 0) return pool(row, x);
    // over the depth: as the parametrization has it; where it has nothing, it may fall
    pool(alpha_ > 0 ? range(row, alpha_ - 1, alpha_ - 1) : range(row, -1, 0), x);
  }

  static CoordRow range(CoordRow row, double low, double high) {
    row.low = low, row.high = high;
    row.expected = 0 < low ? low : 0 > high ? high : 0;
    return row;
  }

  void pool(const CoordRow& row, double x) { pools_[key_of(row)].add(x); }

  std::size_t key_of(const CoordRow& row) {
    const auto name = fmt::format("{} {} {}", static_cast<int>(row.quantity), row.step, row.what);
    const auto [it, fresh] = keys_.emplace(name, keys_.size());
    if (fresh) {
      rows_[it->second] = row;
      rows_[it->second].draws.resize(points_);
      order_.push_back(it->second);
    }
    return it->second;
  }

  static std::size_t logits_of(const Signal& s) {
    const std::string& name = s.steps.front().wires[s.steps.front().logits].name;
    return static_cast<std::size_t>(std::ranges::find(s.nodes, name, &NodeSignal::name) - s.nodes.begin());
  }

  const CoordRequest& request_;
  std::size_t points_;
  bool width_ = true, carried_ = false;
  Parametrization parametrization_ = Parametrization::mup;
  double alpha_ = 0;
  std::map<std::string, std::size_t> keys_;
  std::map<std::size_t, CoordRow> rows_;
  std::map<std::size_t, Pool> pools_;
  std::vector<std::size_t> order_;
};

Expected<Signal> measured_step(const Setup& setup, const OptimizerOptions& options, const CoordPoint& p, const CoordRequest& r, int draw) {
  return measure(setup.graph, setup.architecture, setup.batch,
                 {.scheme = p.scheme,
                  .step = {.steps = r.steps, .optimizer = options, .rates = p.rates, .search = false},
                  .seed = r.seed + static_cast<std::uint64_t>(draw)});
}

Expected<Signal> predicted_step(const Setup& setup, const OptimizerOptions& options, const CoordPoint& p) {
  auto step = predict_step(setup.graph, setup.architecture, setup.batch, Assignment(setup.graph, setup.architecture, *p.scheme),
                           std::string(p.scheme->name), {.optimizer = options, .rates = p.rates});
  if (!step) return std::unexpected(step.error());
  return std::move(step->signal);
}

Expected<void> check(const CoordRequest& r) {
  const auto& axis = r.widths.empty() ? r.depths : r.widths;
  if (r.widths.empty() == r.depths.empty())
    return fail("a coordinate check goes along widths or along depths", "--widths 128,256,512 or --depths 2,4,8");
  if (axis.size() < 2 || !std::ranges::is_sorted(axis) || axis.front() == axis.back())
    return fail("a slope needs two points or more, in rising order", "for example --widths 128,256,512");
  if (r.predicted && r.steps > 1) return fail("theory knows the first step alone", "--steps 1");
  if (r.steps < 1 || r.seeds < 1) return fail("a check takes a step and a draw at least");
  if (r.parametrization == "none" && (r.zero_output || r.zero_query))
    return fail("--zero-output and --zero-query are carried by a parametrization");
  return {};
}

}  // namespace

Expected<std::vector<CoordPoint>> coord_points(const CoordRequest& r) {
  if (auto done = check(r); !done) return std::unexpected(done.error());
  const auto a = find_architecture(r.model.model, r.model.set, r.model.like);
  if (!a) return std::unexpected(a.error());
  const auto& axis = r.widths.empty() ? r.depths : r.widths;
  const auto base = at_point(r, *a, r.base > 0 ? r.base : axis.front());
  if (!base) return std::unexpected(base.error());
  std::vector<CoordPoint> points;
  for (const Index value : axis) {
    const auto model = at_point(r, *a, value);
    if (!model) return std::unexpected(model.error());
    const auto file = std::ranges::find(r.at, value, &std::pair<Index, std::string>::first);
    const auto number = static_cast<double>(value);
    if (r.parametrization == "none" || file != r.at.end()) {
      ModelRequest given = *model;
      if (file != r.at.end()) given.scheme = file->second;
      auto point = as_given(number, given, file != r.at.end() ? file->second : "");
      if (!point) return std::unexpected(point.error());
      points.push_back(std::move(*point));
      continue;
    }
    const auto subject = run_transfer({.base = *base,
                                       .target = *model,
                                       .parametrization = r.parametrization,
                                       .optimizer = r.options.name,
                                       .options = r.options,
                                       .zero_output = r.zero_output,
                                       .zero_query = r.zero_query});
    if (!subject) return std::unexpected(subject.error());
    auto carried = target_of(*subject);
    if (!carried) return std::unexpected(carried.error());
    auto graph = graph_of(carried->architecture, {});
    if (!graph) return std::unexpected(graph.error());
    points.push_back({number, std::move(carried->architecture), std::move(*graph), carried->scheme, std::move(carried->rates)});
  }
  return points;
}

Expected<Coord> check_coordinates(const CoordRequest& r, const std::vector<CoordPoint>& points, const Watch& watch) {
  return guarded(watch, [&]() -> Expected<Coord> {
    const auto options = settled(r.options);
    if (!options) return std::unexpected(options.error());
    Coord coord{.facts = {.width = !r.widths.empty(),
                          .tied = points[0].architecture.tied,
                          .head_dim = r.grow_heads,
                          .kept_keys = points.front().architecture.kv_heads == points.back().architecture.kv_heads &&
                                       points.front().architecture.heads != points.back().architecture.heads,
                          .optimizer = options->name},
                .values = {},
                .rows = {},
                .mistakes = {}};
    Rows rows(r, points.size());
    double whole = 0, done = 0;
    for (const CoordPoint& p : points) whole += static_cast<double>(p.graph.parameter_count()) * r.seeds;
    for (std::size_t k = 0; k < points.size(); ++k) {
      const CoordPoint& p = points[k];
      coord.values.push_back(p.value);
      const auto setup = prepare(p.architecture, *p.scheme, r.input);
      if (!setup) return std::unexpected(setup.error());
      for (int draw = 0; draw < (r.predicted ? 1 : r.seeds); ++draw) {
        const auto signal = r.predicted ? predicted_step(*setup, *options, p) : measured_step(*setup, *options, p, r, draw);
        if (!signal) return std::unexpected(signal.error());
        rows.add(k, p, *options, *signal);
        done += static_cast<double>(p.graph.parameter_count());
        if (watch.progress) watch.progress(done / whole, fmt::format("at {}", p.value));
      }
    }
    coord.rows = rows.take();
    judge(coord);
    return coord;
  });
}

Expected<CoordSubject> run_coord(const CoordRequest& r, const Watch& watch) {
  const auto options = settled(r.options);
  if (!options) return std::unexpected(options.error());
  const auto points = coord_points(r);
  if (!points) return std::unexpected(points.error());
  auto coord = check_coordinates(r, *points, watch);
  if (!coord) return std::unexpected(coord.error());
  return CoordSubject{.base = points->front().architecture,
                      .scheme = r.model.scheme,
                      .parametrization = r.parametrization,
                      .optimizer = *options,
                      .sequences = r.input.sequences > 0 ? r.input.sequences : 1,
                      .length = r.input.length > 0 ? r.input.length : 128,
                      .steps = r.steps,
                      .seeds = r.seeds,
                      .predicted = r.predicted,
                      .coord = std::move(*coord)};
}

}  // namespace stepzero
