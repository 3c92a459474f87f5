#include "stepzero/capi/c.h"

#include "stepzero/api/describe.hpp"
#include "stepzero/api/setup.hpp"
#include "stepzero/capi/call.hpp"
#include "stepzero/models/build.hpp"
#include "stepzero/models/model.hpp"
#include "stepzero/report/diagnosis.hpp"
#include "stepzero/report/op_heads.hpp"
#include "stepzero/report/terminal.hpp"
#include "stepzero/schemes/scheme.hpp"

namespace stepzero {

namespace {

Texts texts_of(const Signal& signal) {
  return {{"json", to_json(signal)}, {"text", to_text(signal, Look{.width = 100, .color = false, .unicode = true}, false)}};
}

// One call of a loaded model.
template <class Run>
sz_result* of_model(Call kind, const char* request, sz_watch* words, const Run& run) {
  return call(kind, request, words, [&](const AnyRequest& r, const Watch& watch) -> Expected<Texts> {
    const auto model = Model::load(r.model, watch);
    if (!model) return std::unexpected(model.error());
    return run(*model, r, watch);
  });
}

// ... that yields a signal.
template <class Run>
sz_result* of_signal(Call kind, const char* request, sz_watch* words, const Run& run) {
  return of_model(kind, request, words, [&](const Model& model, const AnyRequest& r, const Watch& watch) -> Expected<Texts> {
    const Expected<Signal> signal = run(model, r, watch);
    if (!signal) return std::unexpected(signal.error());
    return texts_of(*signal);
  });
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
  return of_model(Call::compare, request, watch, [](const Model& m, const AnyRequest& r, const Watch& w) -> Expected<Texts> {
    const auto signal = m.compare(r.measure, w);
    if (!signal) return std::unexpected(signal.error());
    Texts out = texts_of(*signal);
    out["json"] = to_json(*signal, compare(*signal));
    return out;
  });
}

sz_result* sz_report(const char* request, sz_watch* watch) {
  return of_model(Call::report, request, watch, [](const Model& m, const AnyRequest& r, const Watch& w) -> Expected<Texts> {
    auto report = m.report(r.report, w);
    if (!report) return std::unexpected(report.error());
    Texts out = texts_of(report->signal);
    out["html"] = std::move(report->html);
    return out;
  });
}

sz_result* sz_train(const char* request, sz_watch* watch) {
  return of_model(Call::train, request, watch, [](const Model& m, const AnyRequest& r, const Watch& w) -> Expected<Texts> {
    const auto trained = m.train(r.train, w);
    if (!trained) return std::unexpected(trained.error());
    return Texts{{"json", trained->json()}, {"csv", trained->csv()}, {"html", trained->html("")}};
  });
}

sz_result* sz_solve(const char* request, sz_watch* watch) {
  return of_model(Call::solve, request, watch, [](const Model& m, const AnyRequest& r, const Watch& w) -> Expected<Texts> {
    const auto solved = m.solve(r.solve, w);
    if (!solved) return std::unexpected(solved.error());
    return Texts{{"json", solved->json()},
                 {"text", solved->text()},
                 {"scheme", solved->scheme()},
                 {"rates", solved->rates()},
                 {"torch", solved->torch("stepzero solve")}};
  });
}

sz_result* sz_sweep(const char* request, sz_watch* watch) {
  return of_model(Call::sweep, request, watch, [](const Model& m, const AnyRequest& r, const Watch& w) -> Expected<Texts> {
    const auto swept = m.sweep(r.sweep, w);
    if (!swept) return std::unexpected(swept.error());
    return Texts{{"json", swept->json()}, {"csv", swept->csv()}, {"text", swept->text("backward")}};
  });
}

sz_result* sz_step(const char* request, sz_watch* watch) {
  return of_model(Call::step, request, watch, [](const Model& m, const AnyRequest& r, const Watch& w) -> Expected<Texts> {
    const auto done = m.step(r.step, w);
    if (!done) return std::unexpected(done.error());
    return Texts{{"json", done->json()}, {"text", done->text()}, {"html", done->html("")}};
  });
}

sz_result* sz_coord(const char* request, sz_watch* watch) {
  return of_model(Call::coord, request, watch, [](const Model& m, const AnyRequest& r, const Watch& w) -> Expected<Texts> {
    const auto done = m.coord(r.coord, w);
    if (!done) return std::unexpected(done.error());
    return Texts{{"json", done->json()}, {"text", done->text()}, {"html", done->html("")}, {"verdict", done->pass() ? "pass" : "fail"}};
  });
}

sz_result* sz_transfer(const char* request, sz_watch* watch) {
  return of_model(Call::transfer, request, watch, [](const Model& m, const AnyRequest& r, const Watch& w) -> Expected<Texts> {
    const auto done = m.transfer(r.transfer, w);
    if (!done) return std::unexpected(done.error());
    const std::string json = done->json();  // a scheme too
    return Texts{{"json", json}, {"text", done->text()}, {"torch", done->torch("")}, {"scheme", json}, {"rates", done->rates()}};
  });
}

sz_result* sz_diff(const char* request, sz_watch* watch) {
  return call(Call::diff, request, watch, [](const AnyRequest& r, const Watch& w) -> Expected<Texts> {
    const auto done = diff(r.diff, w);
    if (!done) return std::unexpected(done.error());
    return Texts{{"json", done->json()}, {"text", done->text()}};
  });
}

sz_result* sz_init(const char* request, sz_watch* watch) {
  return of_model(Call::init, request, watch, [](const Model& m, const AnyRequest& r, const Watch& w) -> Expected<Texts> {
    const auto written = m.init(r.init, w);
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

sz_result* sz_explain(void) {
  return result_of(guarded({}, []() -> Expected<Texts> {
    Json ops = Json::array(), findings = Json::array();
    for (const ExplainedOp& op : explained_ops())
      ops.push_back({{"kind", op.kind}, {"grade", to_string(op.grade)}, {"meaning", meaning(op.grade)}, {"head", op.head->text}});
    for (const Diagnosis& d : diagnoses()) findings.push_back({{"id", d.id}, {"meaning", d.meaning}, {"limit", d.limit}});
    return Texts{{"json", Json{{"ops", ops}, {"findings", findings}}.dump()}};
  }));
}

int32_t sz_status(const sz_result* result) { return result == nullptr ? int32_t{SZ_FAILED} : result->status; }

const char* sz_text(const sz_result* result, const char* what) {
  if (result == nullptr || what == nullptr) return "";
  const auto it = result->texts.find(what);
  return it == result->texts.end() ? "" : it->second.c_str();
}

void sz_free(sz_result* result) { delete result; }
