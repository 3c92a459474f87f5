#include "stepzero/capi/c.h"

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "stepzero/api/checkpoints.hpp"
#include "stepzero/api/describe.hpp"
#include "stepzero/api/guarded.hpp"
#include "stepzero/api/setup.hpp"
#include "stepzero/capi/requests.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/graph/role_names.hpp"
#include "stepzero/kernels/to_half.hpp"
#include "stepzero/models/build.hpp"
#include "stepzero/models/model.hpp"
#include "stepzero/report/terminal.hpp"
#include "stepzero/weights/tensor_draw.hpp"

struct sz_result {
  int32_t status = SZ_FINE;
  std::map<std::string, std::string, std::less<>> texts;
};

namespace stepzero {

namespace {

using Texts = std::map<std::string, std::string, std::less<>>;
using Json = nlohmann::ordered_json;

sz_result* result_of(Expected<Texts> texts, std::string warnings = {}) {
  auto out = std::make_unique<sz_result>();
  if (texts) {
    out->texts = std::move(*texts);
  } else {
    const Error& e = texts.error();
    out->status = e.stopped ? SZ_STOPPED : e.busy ? SZ_BUSY : SZ_FAILED;
    out->texts = {{"error", e.message}, {"hint", e.hint}};
  }
  if (!warnings.empty()) out->texts.emplace("warnings", std::move(warnings));
  return out.release();
}

// Reads the request and runs `run` on it under the caller's watch; nothing thrown passes.
template <class Run>
sz_result* call(Call kind, const char* request, sz_watch* words, const Run& run) {
  std::string warnings;
  std::mutex mutex;
  Watch watch;
  watch.warn = [&](const std::string& text) {
    const std::scoped_lock lock(mutex);
    warnings += text + "\n";
  };
  if (words != nullptr) {
    watch.threads = words->threads;
    watch.progress = [words](double share, const std::string&) {
      std::atomic_ref(words->progress).store(share, std::memory_order_relaxed);
    };
    watch.stop = [words] { return std::atomic_ref(words->stop).load(std::memory_order_relaxed) != 0; };
  }
  auto texts = guarded({}, [&]() -> Expected<Texts> {
    auto r = read_request(kind, request == nullptr ? "" : request);
    if (!r) return std::unexpected(r.error());
    return run(*r, watch);
  });
  return result_of(std::move(texts), std::move(warnings));
}

Texts texts_of(const Signal& signal) {
  return {{"json", to_json(signal)}, {"text", to_text(signal, Look{.width = 100, .color = false, .unicode = true}, false)}};
}

// One call of a loaded model that yields a signal.
template <class Run>
sz_result* of_signal(Call kind, const char* request, sz_watch* words, const Run& run) {
  return call(kind, request, words, [&](const AnyRequest& r, const Watch& watch) -> Expected<Texts> {
    const auto model = Model::load(r.model, watch);
    if (!model) return std::unexpected(model.error());
    const Expected<Signal> signal = run(*model, r, watch);
    if (!signal) return std::unexpected(signal.error());
    return texts_of(*signal);
  });
}

struct Drawn {
  Architecture architecture;
  const Scheme* scheme;
  Graph graph;
};

Expected<Drawn> to_draw(const ModelRequest& r) {
  const auto scheme = find_scheme(r.scheme);
  if (!scheme) return std::unexpected(scheme.error());
  auto a = describe_model(r.model, r.set, **scheme, r.like);
  if (!a) return std::unexpected(a.error());
  auto graph = graph_to_write(r, *a);
  if (!graph) return std::unexpected(graph.error());
  return Drawn{std::move(*a), *scheme, std::move(*graph)};
}

Expected<Texts> list_tensors(const ModelRequest& r) {
  const auto drawn = to_draw(r);
  if (!drawn) return std::unexpected(drawn.error());
  const Assignment laws(drawn->graph, drawn->architecture, *drawn->scheme);
  Json list = Json::array();
  for (std::size_t i = 0; i < drawn->graph.params.size(); ++i) {
    const Param& p = drawn->graph.params[i];
    list.push_back({{"name", p.name}, {"shape", p.shape}, {"role", to_string(p.role)}, {"layer", p.layer}, {"std", laws.std(i)}});
  }
  return Texts{{"json", Json{{"tensors", list}}.dump()}};
}

Expected<Texts> fill_tensor(const AnyRequest& r, void* data) {
  const auto dtype = dtype_of(r.init.dtype);
  if (!dtype) return std::unexpected(dtype.error());
  const auto drawn = to_draw(r.model);
  if (!drawn) return std::unexpected(drawn.error());
  const auto& params = drawn->graph.params;
  const auto it = std::ranges::find(params, r.tensor, &Param::name);
  if (it == params.end()) return fail(fmt::format("no tensor is called \"{}\"", show(r.tensor)), "sz_tensors lists them");
  const auto size = static_cast<std::uint64_t>(it->size());
  if (r.first > size || r.count > size - r.first)
    return fail(fmt::format("\"{}\" has {} elements, and {} from {} on are asked for", show(r.tensor), size, r.count, r.first));
  const Assignment laws(drawn->graph, drawn->architecture, *drawn->scheme);
  const auto param = static_cast<std::size_t>(it - params.begin());
  constexpr std::uint64_t piece = std::uint64_t{1} << 20;
  const bool whole = *dtype == DType::F32 || laws.structured(param);  // what is structured is made whole each time
  std::vector<float> numbers;
  for (std::uint64_t at = 0; at < r.count;) {
    end_if_stopped();
    const std::uint64_t n = whole ? r.count : std::min(piece, r.count - at);
    if (*dtype == DType::F32) {
      draw_elements(drawn->graph, laws, param, r.init.seed, r.first, std::span(static_cast<float*>(data), n));
    } else {
      numbers.resize(n);
      draw_elements(drawn->graph, laws, param, r.init.seed, r.first + at, std::span(numbers));
      auto* to = static_cast<std::uint16_t*>(data) + at;
      const bool fits = *dtype == DType::BF16 ? kernels::narrow_to_bfloat16(numbers, to) : kernels::narrow_to_half(numbers, to);
      if (!fits)
        return fail(fmt::format("a number of \"{}\" does not fit in {}", show(r.tensor), r.init.dtype), "f32 and bf16 reach further");
    }
    at += n;
  }
  return Texts{};
}

}  // namespace

}  // namespace stepzero

using namespace stepzero;  // NOLINT: the functions below are the interface, and C knows no namespaces

const char* sz_version(void) { return version(); }

sz_result* sz_predict(const char* request, sz_watch* watch) {
  return of_signal(Call::predict, request, watch,
                   [](const Model& m, const AnyRequest& r, const Watch& w) { return m.predict(r.predict, w); });
}

sz_result* sz_measure(const char* request, sz_watch* watch) {
  return of_signal(Call::measure, request, watch,
                   [](const Model& m, const AnyRequest& r, const Watch& w) { return m.measure(r.measure, w); });
}

sz_result* sz_compare(const char* request, sz_watch* watch) {
  return call(Call::compare, request, watch, [](const AnyRequest& r, const Watch& w) -> Expected<Texts> {
    const auto model = Model::load(r.model, w);
    if (!model) return std::unexpected(model.error());
    const auto signal = model->compare(r.measure, w);
    if (!signal) return std::unexpected(signal.error());
    Texts out = texts_of(*signal);
    out["json"] = to_json(*signal, compare(*signal));
    return out;
  });
}

sz_result* sz_report(const char* request, sz_watch* watch) {
  return call(Call::report, request, watch, [](const AnyRequest& r, const Watch& w) -> Expected<Texts> {
    const auto model = Model::load(r.model, w);
    if (!model) return std::unexpected(model.error());
    auto report = model->report(r.report, w);
    if (!report) return std::unexpected(report.error());
    Texts out = texts_of(report->signal);
    out["html"] = std::move(report->html);
    return out;
  });
}

sz_result* sz_train(const char* request, sz_watch* watch) {
  return call(Call::train, request, watch, [](const AnyRequest& r, const Watch& w) -> Expected<Texts> {
    const auto model = Model::load(r.model, w);
    if (!model) return std::unexpected(model.error());
    const auto trained = model->train(r.train, w);
    if (!trained) return std::unexpected(trained.error());
    return Texts{{"json", trained->json()}, {"csv", trained->csv()}, {"html", trained->html("")}};
  });
}

sz_result* sz_init(const char* request, sz_watch* watch) {
  return call(Call::init, request, watch, [](const AnyRequest& r, const Watch& w) -> Expected<Texts> {
    const auto model = Model::load(r.model, w);
    if (!model) return std::unexpected(model.error());
    const auto written = model->init(r.init, w);
    if (!written) return std::unexpected(written.error());
    Json files = Json::array();
    for (const WrittenFile& f : written->files) files.push_back({{"path", f.path}, {"bytes", f.bytes}, {"kept", f.kept}});
    return Texts{{"json", Json{{"files", files}, {"shards_missing", written->shards_missing}}.dump()}};
  });
}

sz_result* sz_audit(const char* request, sz_watch* watch) {
  return call(Call::audit, request, watch, [](const AnyRequest& r, const Watch& w) -> Expected<Texts> {
    const auto found = audit(r.audit, w);
    if (!found) return std::unexpected(found.error());
    return Texts{{"json", found->json()}, {"html", found->html()}};
  });
}

sz_result* sz_describe(const char* request, sz_watch* watch) {
  return call(Call::describe, request, watch, [](const AnyRequest& r, const Watch&) -> Expected<Texts> {
    const auto a = find_architecture(r.model.model, r.model.set, r.model.like);
    if (!a) return std::unexpected(a.error());
    Texts out = {{"json", describe_as_graph(*a).dump()}};
    if (auto text = describe_as_file(*a)) out["text"] = std::move(*text);  // not every model has one: the graph is there
    return out;
  });
}

sz_result* sz_tensors(const char* request, sz_watch* watch) {
  return call(Call::tensors, request, watch,
              [](const AnyRequest& r, const Watch& w) { return guarded(w, [&] { return list_tensors(r.model); }); });
}

sz_result* sz_fill(const char* request, void* data, sz_watch* watch) {
  return call(Call::fill, request, watch,
              [data](const AnyRequest& r, const Watch& w) { return guarded(w, [&] { return fill_tensor(r, data); }); });
}

sz_result* sz_models(void) {
  return result_of(guarded({}, []() -> Expected<Texts> {
    Json list = Json::array();
    for (const Preset& preset : presets()) {
      const auto a = find_architecture(std::string(preset.name), {});
      if (!a) return std::unexpected(a.error());
      list.push_back({{"name", a->name},
                      {"family", a->family},
                      {"parameters", build_graph(*a).parameter_count()},
                      {"layers", a->layers},
                      {"width", a->width},
                      {"heads", a->heads},
                      {"vocab", a->vocab}});
    }
    return Texts{{"json", Json{{"models", list}}.dump()}};
  }));
}

sz_result* sz_schemes(void) {
  return result_of(guarded({}, []() -> Expected<Texts> {
    Json list = Json::array();
    for (const Scheme& s : schemes()) list.push_back({{"name", s.name}, {"summary", s.summary}, {"source", s.source}});
    return Texts{{"json", Json{{"schemes", list}}.dump()}};
  }));
}

int32_t sz_status(const sz_result* result) { return result == nullptr ? int32_t{SZ_FAILED} : result->status; }

const char* sz_text(const sz_result* result, const char* what) {
  if (result == nullptr || what == nullptr) return "";
  const auto it = result->texts.find(what);
  return it == result->texts.end() ? "" : it->second.c_str();
}

void sz_free(sz_result* result) { delete result; }
