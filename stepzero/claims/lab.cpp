#include "stepzero/claims/lab.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "stepzero/core/parallel.hpp"
#include "stepzero/graph/questions.hpp"
#include "stepzero/kernels/fill.hpp"
#include "stepzero/kernels/statistics.hpp"

namespace stepzero::claims {

std::vector<Running> average(int draws, const std::function<std::vector<double>(int draw)>& see) {
  std::vector<std::vector<double>> seen(static_cast<std::size_t>(draws));
  parallel_for(draws, [&](Index i) { seen[static_cast<std::size_t>(i)] = see(static_cast<int>(i)); });
  std::vector<Running> out(seen.front().size());
  for (const auto& numbers : seen) {
    for (std::size_t k = 0; k < out.size(); ++k) out[k].add(numbers[k]);
  }
  return out;
}

Lab::Lab(Index tokens, Index sequences) {
  batch_.length = tokens;
  batch_.sequences = sequences;
  batch_.ids.resize(static_cast<std::size_t>(batch_.tokens()));
  std::iota(batch_.ids.begin(), batch_.ids.end(), 0);
  batch_.targets = batch_.ids;
}

int Lab::source(Index channels, const Distribution& law) { return add(TokenEmbedding{batch_.tokens(), channels}, {}, {law}); }

int Lab::add(const AnyOp& op, std::vector<int> inputs, const std::vector<Distribution>& laws) {
  std::vector<ParamUse> uses;
  const auto shapes = std::visit([](const auto& o) { return o.params(); }, op);
  STEPZERO_CHECK(shapes.size() == laws.size());
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const ParamShape& s = shapes[i];
    const int param =
        graph_.add_param({fmt::format("lab.{}", graph_.params.size()), {s.rows, s.cols}, Role::projection, -1, s.fan_in, s.fan_out});
    uses.push_back(graph_.whole(param));
    laws_.push_back(laws[i]);
  }
  return graph_.add_node(fmt::format("node.{}", graph_.nodes.size()), op, std::move(inputs), uses);
}

int Lab::linear(int x, Index out, const Distribution& law) {
  const Index in = channels_of(graph_.nodes[static_cast<std::size_t>(x)].op);
  return add(Linear{in, out}, {x}, {law});
}

void Lab::pull(int y) {
  const Index n = channels_of(graph_.nodes[static_cast<std::size_t>(y)].op);
  const int r = source(n, Distribution::normal(1));
  add(Multiply{n}, {y, r});
  up_ = true;
}

void Lab::same_tokens() { std::ranges::fill(batch_.ids, 0); }

std::vector<Running> Lab::run(const Settings& settings, int draws, const std::function<std::vector<double>(const Shot&)>& see) const {
  return average(draws, [&](int draw) {
    Pass<float> pass(graph_, batch_);
    for (std::size_t i = 0; i < laws_.size(); ++i) {
      const View<float> w = pass.weight(static_cast<int>(i));
      fill(laws_[i], make_stream(settings.seed(draw), graph_.params[i].name), 0,
           std::span<float>(w.data, static_cast<std::size_t>(w.size())));
    }
    Shot shot{pass};
    pass.forward({.forward = [&](int node, View<const float>, View<const float> keep) {
      if (const auto summary = summary_of(graph_.nodes[static_cast<std::size_t>(node)].op, batch_, keep)) shot.attention[node] = *summary;
    }});
    if (up_) pass.backward({.backward = [&](int node, View<const float> dy) { shot.gradients[node] = stepzero::moments(dy); }});
    return see(shot);
  });
}

}  // namespace stepzero::claims
