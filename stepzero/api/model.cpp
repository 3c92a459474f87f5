#include "stepzero/api/checkpoints.hpp"
#include "stepzero/api/guarded.hpp"
#include "stepzero/api/setup.hpp"
#include "stepzero/pass/measure.hpp"
#include "stepzero/report/diagnosis.hpp"
#include "stepzero/report/html.hpp"
#include "stepzero/stepzero.hpp"
#include "stepzero/theory/predict_long.hpp"

namespace stepzero {

const char* version() { return STEPZERO_VERSION; }

namespace {

// A part of the work, as Watch is told of it.
struct Part {
  double from = 0, to = 1;
};

Expected<Signal> predict_setup(const Setup& setup, const PredictRequest& request, const Watch& watch, Part part = {}) {
  if (!(request.effort > 0 && request.effort <= 1)) return fail(fmt::format("effort = {} is not above 0 and at most 1", request.effort));
  Teller tell(watch, "predicting", part.from, part.to);
  return predict_any(setup.graph, setup.architecture, setup.batch, *setup.scheme,
                     {.order = request.order,
                      .effort = request.effort,
                      .jacobians = request.jacobians,
                      .longest = request.whole ? setup.batch.length : 0,
                      .progress = [&](double share) { tell(share); }});
}

Expected<Signal> measure_setup(const Setup& setup, const MeasureRequest& request, const Watch& watch, Part part = {}) {
  const auto dtype = dtype_of(request.dtype);
  if (!dtype) return std::unexpected(dtype.error());
  if (request.seeds < 1) return fail(fmt::format("{} seeds: at least one is needed", request.seeds));
  auto step = step_options(request.steps, request.optimizer, request.rates, setup.graph);
  if (!step) return std::unexpected(step.error());
  Teller tell(watch, "measuring", part.from, part.to);
  MeasureOptions options{.scheme = setup.scheme,
                         .weights = request.weights,
                         .adapter = request.adapter,
                         .weightless = request.weightless,
                         .stream = request.stream,
                         .dtype = *dtype,
                         .step = std::move(*step),
                         .seed = request.seed,
                         .seeds = request.seeds};
  options.enough = [&](const Ensemble& ensemble) { return request.until > 0 && ensemble.error() <= request.until; };
  options.progress = [&](double share) { tell(share); };
  options.warn = options.note = watch.warn;
  auto signal = measure(setup.graph, setup.architecture, setup.batch, options);
  if (signal && request.dtype != "f32") signal->dtype = request.dtype;
  return signal;
}

// Names its input, and judges it.
Signal finished(Signal signal, const Setup& setup, const InputOptions& input) {
  signal.tokens = input_name(input, setup.batch);
  signal.findings = diagnose(signal);
  return signal;
}

Expected<Signal> compare_setup(const Setup& setup, const MeasureRequest& request, const Watch& watch, double until) {
  constexpr double theory = 0.3;  // its share of the work
  const auto predicted = predict_setup(setup, {}, watch, {0, theory * until});
  if (!predicted) return predicted;
  const auto measured = measure_setup(setup, request, watch, {theory * until, until});
  if (!measured) return measured;
  Signal joined = join(*predicted, *measured);
  joined.weightless = request.weightless;
  return joined;
}

}  // namespace

Expected<Model> Model::load(const ModelRequest& request, const Watch& watch) {
  return guarded(watch, [&]() -> Expected<Model> {
    const auto scheme = find_scheme(request.scheme);
    if (!scheme) return std::unexpected(scheme.error());
    auto a = describe_model(request.model, request.set, **scheme, request.like);
    if (!a) return std::unexpected(a.error());
    if (const auto graph = graph_of(*a, {.lora = request.lora}); !graph) return std::unexpected(graph.error());
    Model model;
    model.request_ = request;
    model.architecture_ = std::move(*a);
    model.scheme_ = *scheme;
    return model;
  });
}

Expected<Signal> Model::predict(const PredictRequest& request, const Watch& watch) const {
  return guarded(watch, [&]() -> Expected<Signal> {
    const auto setup = prepare(architecture_, *scheme_, request.input, {request_.lora});
    if (!setup) return std::unexpected(setup.error());
    auto signal = predict_setup(*setup, request, watch);
    if (!signal) return signal;
    return finished(std::move(*signal), *setup, request.input);
  });
}

Expected<Signal> Model::measure(const MeasureRequest& request, const Watch& watch) const {
  return guarded(watch, [&]() -> Expected<Signal> {
    const auto setup = prepare(architecture_, *scheme_, request.input, {request_.lora, request.adapter});
    if (!setup) return std::unexpected(setup.error());
    auto signal = measure_setup(*setup, request, watch);
    if (!signal) return signal;
    return finished(std::move(*signal), *setup, request.input);
  });
}

Expected<Signal> Model::compare(const MeasureRequest& request, const Watch& watch) const {
  return guarded(watch, [&]() -> Expected<Signal> {
    const auto setup = prepare(architecture_, *scheme_, request.input, {request_.lora, request.adapter});
    if (!setup) return std::unexpected(setup.error());
    auto joined = compare_setup(*setup, request, watch, 1);
    if (!joined) return joined;
    return finished(std::move(*joined), *setup, request.input);
  });
}

Expected<Report> Model::report(const ReportRequest& request, const Watch& watch) const {
  return guarded(watch, [&]() -> Expected<Report> {
    const auto setup = prepare(architecture_, *scheme_, request.measure.input, {request_.lora, request.measure.adapter});
    if (!setup) return std::unexpected(setup.error());
    const double pages = 1 + static_cast<double>(request.compare_schemes.size());
    auto signal =
        request.measured ? compare_setup(*setup, request.measure, watch, 1 / pages) : predict_setup(*setup, {}, watch, {0, 1 / pages});
    if (!signal) return std::unexpected(signal.error());
    Page page{finished(std::move(*signal), *setup, request.measure.input), {}, request.command, version()};
    for (const std::string& scheme : request.compare_schemes) {
      if (scheme == request_.scheme) continue;  // the report itself
      const double done = 1 + static_cast<double>(page.alternatives.size());
      ModelRequest other = request_;
      other.scheme = scheme;
      const auto model = load(other);
      if (!model) return std::unexpected(model.error());
      const auto beside = prepare(model->architecture_, *model->scheme_, request.measure.input, {request_.lora, request.measure.adapter});
      if (!beside) return std::unexpected(beside.error());
      auto theory = predict_setup(*beside, {}, watch, {done / pages, (done + 1) / pages});
      if (!theory) return std::unexpected(theory.error());
      page.alternatives.push_back(finished(std::move(*theory), *beside, request.measure.input));
    }
    std::string html = to_html(page);
    return Report{std::move(page.signal), std::move(html)};
  });
}

Expected<InitResult> Model::init(const InitRequest& request, const Watch& watch) const {
  return guarded(watch, [&]() -> Expected<InitResult> {
    const auto graph = graph_to_write(request_, architecture_);
    if (!graph) return std::unexpected(graph.error());
    auto options = checkpoint_options(request_, architecture_, request);
    if (!options) return std::unexpected(options.error());
    Teller tell(watch, "writing");
    options->progress = [&](double share, double) { tell(share); };
    const auto report = write_checkpoint(*graph, Assignment(*graph, architecture_, *scheme_), *options);
    if (!report) return std::unexpected(report.error());
    InitResult result{.files = {}, .shards_missing = report->shards_missing};
    for (const CheckpointFile& file : report->files) result.files.push_back({file.path, file.bytes, file.kept});
    return result;
  });
}

}  // namespace stepzero
