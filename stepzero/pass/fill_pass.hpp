#pragma once
// Puts weights into a pass: drawn under a scheme, or read from a checkpoint.
#include "stepzero/pass/pass.hpp"
#include "stepzero/weights/tensor_draw.hpp"
#include "stepzero/weights/weights.hpp"

namespace stepzero {

// Bits depend on (seed, tensor name, element index, distribution) alone. Of a tensor that `weightless` leaves unmade,
// the explicit rows are drawn: the same bits as in the whole.
template <class S>
void draw_weights(Pass<S>& pass, const Graph& graph, const Assignment& assignment, std::uint64_t seed,
                  const Weightless* weightless = nullptr) {
  for (std::size_t i = 0; i < graph.params.size(); ++i) {
    const View<S> w = pass.weight(static_cast<int>(i));
    const bool whole = weightless == nullptr || weightless->params[i].made;
    if (whole) draw_elements(graph, assignment, i, seed, 0, std::span<S>(w.data, static_cast<std::size_t>(w.size())));
    const auto rows = whole ? std::span<const Index>() : std::span<const Index>(weightless->params[i].rows);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      draw_elements(graph, assignment, i, seed, static_cast<std::uint64_t>(rows[r] * w.cols),
                    std::span<S>(w.row(static_cast<Index>(r)), static_cast<std::size_t>(w.cols)));
    }
  }
}

template <class S>
void draw_weights(Pass<S>& pass, const Graph& graph, const Architecture& a, const Scheme& scheme, std::uint64_t seed,
                  const Weightless* weightless = nullptr) {
  draw_weights(pass, graph, Assignment(graph, a, scheme), seed, weightless);
}

// Every tensor of the graph must be there, in its shape; those of adapters in a file of their own. Returns warnings about tensors that
// were not used.
template <class S>
Expected<std::vector<std::string>> load_weights(Pass<S>& pass, const Graph& graph, const Architecture& a, const CheckpointFiles& file,
                                                const CheckpointFiles* adapters = nullptr) {
  std::vector<std::string> warnings, more;
  const auto model = stored_weights<S>(graph, a, file, warnings);
  if (!model) return std::unexpected(model.error());
  Expected<WeightMakerOf<S>> beside;
  if (adapters != nullptr) beside = adapter_weights<S>(graph, a, *adapters, more);
  if (!beside) return std::unexpected(beside.error());
  for (std::size_t i = 0; i < graph.params.size(); ++i) {
    const auto& make = graph.params[i].is_adapter() ? *beside : *model;
    if (!make) return fail("a model with adapters needs a file of theirs");
    if (auto done = make(i, pass.weight(static_cast<int>(i))); !done) return std::unexpected(done.error());
  }
  warnings.insert(warnings.end(), more.begin(), more.end());
  return warnings;
}

}  // namespace stepzero
