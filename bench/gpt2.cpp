// GPT-2 124M, forward + backward, with and without statistics; its products against the same products alone.
// Checks first: the loss with statistics is the loss without, and near ln V. Prints one JSON line for bench/run.py.
//
//     bench_gpt2 BATCH SEQ STEPS THREADS
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include <fmt/format.h>

#include "bench/alone.hpp"
#include "stepzero/io/tokens.hpp"
#include "stepzero/models/build.hpp"
#include "stepzero/models/model.hpp"
#include "stepzero/walks/measure.hpp"

namespace {

using namespace stepzero;

using bench::flops;
using bench::fma_peak;
using bench::median;
using bench::now;
using bench::Product;

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
  Pass<float> pass(graph, batch, {.head_rows = number(5, measured_head_rows)});
  draw_weights(pass, graph, a, *find_scheme("gpt2").value(), 0);

  // check, then time
  Signal signal = describe(graph, a, batch);
  measure_pass(pass, graph, batch, signal);
  const double plain_loss = pass.forward();
  pass.backward();
  if (plain_loss != *signal.loss.measured || std::abs(plain_loss - std::log(50257.0)) > 0.5) {
    fmt::print(stderr, "the loss is wrong: {} with statistics, {} without\n", *signal.loss.measured, plain_loss);
    return 1;
  }

  std::vector<double> with, without;
  std::map<bench::Shape, Product> products;
  bench::Operands memory;
  std::vector<GemmRecord> log;
  double peak_mb = 0, work = 0;
  for (int i = 0; i < number(3, 5); ++i) {
    log.clear();
    set_gemm_log(&log);
    double start = now();
    measure_pass(pass, graph, batch, signal);
    with.push_back(now() - start);
    set_gemm_log(nullptr);
    start = now();
    pass.forward();
    pass.backward();
    without.push_back(now() - start);
    if (i == 0) peak_mb = static_cast<double>(peak_memory()) * 1e-6;  // before the loose products take memory of their own
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
  fmt::print(R"({{"batch": {}, "seq": {}, "median_s": {:.4f}, "plain_median_s": {:.4f}, "products_s": {:.4f}, "products_alone_s": {:.4f}, )"
             R"("product_gflops": {:.1f}, "fma_peak_gflops": {:.1f}, "peak_rss_mb": {:.0f}}})"
             "\n",
             batch.sequences, batch.length, median(with), median(without), inside, alone, work / inside * 1e-9, fma_peak() * 1e-9, peak_mb);
  return 0;
}
