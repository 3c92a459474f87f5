#include "stepzero/claims/model.hpp"

#include <cmath>

#include <fmt/format.h>

#include "stepzero/core/parallel.hpp"
#include "stepzero/io/tokens.hpp"
#include "stepzero/models/build.hpp"
#include "stepzero/models/model.hpp"
#include "stepzero/pass/fill_pass.hpp"
#include "stepzero/pass/measure.hpp"
#include "stepzero/signal/describe.hpp"
#include "stepzero/theory/predict.hpp"
#include "stepzero/theory/scheme_profile.hpp"

namespace stepzero::claims {

namespace {

// What is asked for comes from this program, apart from sizes, whose bounds the settings keep.
template <class T>
T must(Expected<T> done) {
  if (!done) report_bug(done.error().message.c_str(), __FILE__, __LINE__);
  if constexpr (!std::is_void_v<T>) return std::move(*done);
}

const NodeSignal& node(const Signal& s, const std::string& name) {
  for (const NodeSignal& n : s.nodes) {
    if (n.name == name) return n;
  }
  report_bug("the signal has the node", __FILE__, __LINE__);
}

const NodeSignal& stream_node(const Signal& s, Index layer) { return node(s, fmt::format("stream.{}", layer)); }

}  // namespace

void Model::set(Role role, const Distribution& law) {
  for (std::size_t i = 0; i < graph.params.size(); ++i) {
    if (graph.params[i].role == role) laws.set(i, law);
  }
}

Model make_model(const Description& d) {
  Architecture a = must(load_model("llama-2-7b"));
  std::vector<std::string> fields = {"layers=8",   "width=128",      "heads=4",        "kv_heads=0",      "head_dim=0", "ffn=0",
                                     "vocab=256",  "positions=4096", "gated=false",    "activation=relu", "rotary=0",   "tied=false",
                                     "init_std=1", "position=none",  "norm=layernorm", "norm_eps=1e-5"};
  fields.insert(fields.end(), d.set.begin(), d.set.end());
  for (const std::string& field : fields) must(set_field(a, field));
  must(resolve(a));
  const Scheme* scheme = must(find_scheme(d.scheme));
  must(adapt(a, *scheme, profile));
  Graph graph = build_graph(a);
  Batch batch = must(make_batch(
      {.source = d.source, .length = d.tokens, .sequences = 1, .targets = Targets::same, .vocab = a.vocab, .positions = a.positions}));
  for (std::size_t t = 0; t < batch.targets.size(); ++t)
    batch.targets[t] = static_cast<std::int32_t>(a.vocab - 1 - static_cast<Index>(t) % a.vocab);
  Model model{std::move(a), std::move(graph), std::move(batch), {}};
  model.laws = Assignment(model.graph, model.a, *scheme);
  return model;
}

Signal predicted(const Model& m) { return predict(m.graph, m.a, m.batch, m.laws); }

std::vector<Signal> measured(const Model& m, const Settings& settings, int draws) {
  std::vector<Signal> signals(static_cast<std::size_t>(draws));
  parallel_for(draws, [&](Index i) {
    Pass<float> pass(m.graph, m.batch);
    draw_weights(pass, m.graph, m.laws, settings.seed(static_cast<int>(i)));
    Signal signal = describe(m.graph, m.a, m.batch);
    measure_pass(pass, m.graph, m.batch, signal);
    signals[static_cast<std::size_t>(i)] = std::move(signal);
  });
  return signals;
}

double value_of(const Value& v) { return v.measured ? *v.measured : v.predicted.value_or(NAN); }
double stream(const Signal& s, Index layer) { return value_of(stream_node(s, layer).forward.second_moment); }
double stream_cosine(const Signal& s, Index layer) { return value_of(stream_node(s, layer).forward.token_cosine); }
double stream_gradient(const Signal& s, Index layer) { return value_of(stream_node(s, layer).backward.norm); }

Running over(const std::vector<Signal>& signals, const std::function<double(const Signal&)>& f) {
  Running r;
  for (const Signal& s : signals) r.add(f(s));
  return r;
}

}  // namespace stepzero::claims
