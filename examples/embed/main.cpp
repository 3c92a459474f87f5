// stepzero as a library: describe a model, draw its weights, run one pass, read the signal.
#include <cstdio>

#include <stepzero/io/tokens.hpp>
#include <stepzero/models/build.hpp>
#include <stepzero/models/model.hpp>
#include <stepzero/pass/measure.hpp>

int main() {
  using namespace stepzero;
  auto model = load_model("gpt2");
  if (!model) return std::puts(model.error().message.c_str()), 2;
  for (const char* change : {"layers=4", "width=256", "heads=8", "vocab=5000"}) {
    if (auto done = set_field(*model, change); !done) return std::puts(done.error().message.c_str()), 2;
  }
  if (auto done = resolve(*model); !done) return std::puts(done.error().message.c_str()), 2;

  const Graph graph = build_graph(*model);
  const Batch batch = make_batch({.source = "zipf", .length = 64, .vocab = model->vocab, .positions = model->positions}).value();
  const auto signal =
      measure(graph, *model, batch, {.scheme = find_scheme("gpt2").value(), .weights = {}, .seeds = 3, .progress = {}, .warn = {}});
  if (!signal) return std::puts(signal.error().message.c_str()), 2;

  for (const NodeSignal& node : signal->nodes) {
    if (node.name.starts_with("stream."))
      std::printf("%-10s E[x^2] %.4g +- %.1g\n", node.name.c_str(), *node.forward.second_moment.measured,
                  *node.forward.second_moment.standard_error);
  }
  std::printf("loss %.4f, gradient norm %.4f\n", *signal->loss.measured, *signal->gradient_norm.measured);
}
