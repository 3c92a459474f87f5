#include "stepzero/api/coord.hpp"

#include <fmt/format.h>

#include "stepzero/api/coord_rows.hpp"
#include "stepzero/api/guarded.hpp"
#include "stepzero/api/setup.hpp"
#include "stepzero/pass/measure.hpp"
#include "stepzero/theory/predict_step.hpp"

namespace stepzero {

namespace {

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

}  // namespace

Expected<Coord> check_coordinates(const CoordRequest& r, const std::vector<CoordPoint>& points, const Watch& watch) {
  return guarded(watch, [&]() -> Expected<Coord> {
    const auto options = settled(r.optimizer);
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
    CoordRows rows(r, points.size());
    double whole = 0, done = 0;
    for (const CoordPoint& p : points) whole += static_cast<double>(p.graph.parameter_count()) * (r.predicted ? 1 : r.seeds);
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

Expected<CoordResult> Model::coord(const CoordRequest& request, const Watch& watch) const {
  return guarded(watch, [&]() -> Expected<CoordResult> {
    CoordRequest r = request;
    if (r.predicted) r.steps = 1;  // theory knows no more
    const auto options = settled(r.optimizer);
    if (!options) return std::unexpected(options.error());
    const auto points = coord_points(request_, r);
    if (!points) return std::unexpected(points.error());
    auto coord = check_coordinates(r, *points, watch);
    if (!coord) return std::unexpected(coord.error());
    return CoordResult(std::make_shared<const CoordSubject>(CoordSubject{.base = points->front().architecture,
                                                                         .scheme = request_.scheme,
                                                                         .parametrization = r.parametrization,
                                                                         .optimizer = *options,
                                                                         .sequences = r.input.sequences > 0 ? r.input.sequences : 1,
                                                                         .length = r.input.length > 0 ? r.input.length : 128,
                                                                         .steps = r.steps,
                                                                         .seeds = r.seeds,
                                                                         .predicted = r.predicted,
                                                                         .coord = std::move(*coord)}));
  });
}

bool CoordResult::pass() const { return subject_->coord.pass(); }
std::string CoordResult::json() const { return coord_json(*subject_); }
std::string CoordResult::text() const { return coord_text(*subject_, kPlainLook, false); }
std::string CoordResult::html(const std::string& command) const { return coord_html(*subject_, command, version()); }

}  // namespace stepzero
