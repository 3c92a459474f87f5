// GPT-2 124M, forward + backward, as `measure` runs it, with and without statistics, and with every gradient made, whose products
// are compared with the same products alone. Checks first: the loss with statistics is the loss without, and near ln V; the norms of
// gradients that were made are those of gradients that were not. Prints one JSON line for bench/run.py.
//
//     bench_gpt2 BATCH SEQ STEPS THREADS
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "bench/alone.hpp"
#include "stepzero/io/tokens.hpp"
#include "stepzero/models/build.hpp"
#include "stepzero/models/model.hpp"
#include "stepzero/pass/fill_pass.hpp"
#include "stepzero/pass/measure.hpp"
#include "stepzero/signal/describe.hpp"

namespace {

using namespace stepzero;

using bench::flops;
using bench::fma_peak;
using bench::median;
using bench::now;
using bench::Product;

// Both ways to a norm agree to the rounding of floats.
bool same_norms(const Signal& made, const Signal& not_made) {
  for (std::size_t i = 0; i < made.parameters.size(); ++i) {
    const double x = *made.parameters[i].gradient_norm.measured, y = *not_made.parameters[i].gradient_norm.measured;
    if (std::abs(x - y) <= 1e-5 * x) continue;
    fmt::print(stderr, "the norm of {} is wrong: {} made, {} not made\n", made.parameters[i].name, x, y);
    return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, int fallback) { return argc > i ? std::atoi(argv[i]) : fallback; };
  keep_freed_memory();
  set_threads(number(4, 2));
  auto a = load_model("gpt2").value();
  if (!resolve(a)) return 1;
  const Graph graph = build_graph(a);
  const Batch batch =
      make_batch({.source = "zipf", .length = number(2, 256), .sequences = number(1, 1), .vocab = a.vocab, .positions = a.positions})
          .value();
  const auto scheme = find_scheme("gpt2").value();
  PassOptions options{.head_rows = number(5, measured_head_rows), .norms = true};  // as `measure` runs it
  Pass<float> pass(graph, batch, options);
  draw_weights(pass, graph, a, *scheme, 0);

  // check, then time
  Signal signal = describe(graph, a, batch);
  measure_pass(pass, graph, batch, signal);
  const double plain_loss = pass.forward();
  pass.backward();
  if (plain_loss != *signal.loss.measured || std::abs(plain_loss - std::log(50257.0)) > 0.5) {
    fmt::print(stderr, "the loss is wrong: {} with statistics, {} without\n", *signal.loss.measured, plain_loss);
    return 1;
  }

  std::vector<double> with, without, all_made;
  std::optional<Pass<float>> made;
  std::map<bench::Shape, Product> products;
  bench::Operands memory;
  std::vector<GemmRecord> log;
  double peak_mb = 0, work = 0;
  for (int i = 0; i < number(3, 5); ++i) {
    double start = now();
    measure_pass(pass, graph, batch, signal);
    with.push_back(now() - start);
    start = now();
    pass.forward();
    pass.backward();
    without.push_back(now() - start);
    if (!made) {
      peak_mb = static_cast<double>(peak_memory()) * 1e-6;  // before the second pass and the loose products take memory of their own
      options.norms = false;
      made.emplace(graph, batch, options);
      draw_weights(*made, graph, a, *scheme, 0);
      Signal same = describe(graph, a, batch);
      measure_pass(*made, graph, batch, same);
      if (!same_norms(same, signal)) return 1;
    }
    log.clear();
    set_gemm_log(&log);
    start = now();
    measure_pass(*made, graph, batch, signal);
    all_made.push_back(now() - start);
    set_gemm_log(nullptr);
    work = 0;
    for (auto& [shape, product] : products) product.count = 0;
    for (const GemmRecord& r : log) {
      Product& product = products[bench::shape_of(r)];
      ++product.count;
      product.inside.push_back(r.seconds);
      work += flops(r);
    }
    for (auto& [shape, product] : products) {
      for (int repeat = 0; repeat < std::min(product.count, 4); ++repeat) run_alone(shape, product, memory);
    }
  }
  double inside = 0, alone = 0;
  for (const auto& [shape, product] : products) {
    inside += product.count * median(product.inside);
    alone += product.count * product.alone();
  }
  fmt::print(
      R"({{"batch": {}, "seq": {}, "median_s": {:.4f}, "plain_median_s": {:.4f}, "made_median_s": {:.4f}, "products_s": {:.4f}, "products_alone_s": {:.4f}, )"
      R"("product_gflops": {:.1f}, "fma_peak_gflops": {:.1f}, "peak_rss_mb": {:.0f}}})"
      "\n",
      batch.sequences, batch.length, median(with), median(without), median(all_made), inside, alone, work / inside * 1e-9,
      fma_peak() * 1e-9, peak_mb);
  return 0;
}
