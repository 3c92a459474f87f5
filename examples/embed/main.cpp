// stepzero as a library: a model, its signal by theory, as numbers and as JSON.
#include <cstdio>

#include <stepzero/stepzero.hpp>

int main() {
  const auto model = stepzero::Model::load({.model = "gpt2", .set = {"layers=4", "width=256", "heads=8"}, .scheme = "xavier-normal"});
  if (!model) return std::puts(model.error().message.c_str()), 2;
  const auto signal = model->predict({.input = {.length = 64}});
  if (!signal) return std::puts(signal.error().message.c_str()), 2;
  std::printf("loss %.4f, gradient norm %.4f\n", *signal->loss.predicted, *signal->gradient_norm.predicted);
  for (const stepzero::Finding& f : signal->findings) std::printf("%s: %s\n", f.id.c_str(), f.evidence.c_str());
}
