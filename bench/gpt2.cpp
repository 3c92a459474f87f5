// GPT-2 124M, forward + backward, with and without statistics; its products against the same products alone.
// Checks first: the loss with statistics is the loss without, and near ln V. Prints one JSON line for bench/run.py.
//
//     bench_gpt2 BATCH SEQ STEPS THREADS
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <map>
#include <tuple>

#include <cblas.h>
#include <fmt/format.h>
#include <hwy/highway.h>
#include <oneapi/dnnl/dnnl.h>

#include "bench/roof.hpp"
#include "stepzero/io/tokens.hpp"
#include "stepzero/models/build.hpp"
#include "stepzero/models/model.hpp"
#include "stepzero/walks/measure.hpp"

namespace {

using namespace stepzero;

using bench::fma_peak;
using bench::now;

double flops(const GemmRecord& r) { return 2.0 * static_cast<double>(r.rows) * static_cast<double>(r.cols) * static_cast<double>(r.inner); }

using Shape = std::tuple<Trans, Trans, Index, Index, Index>;
Shape shape_of(const GemmRecord& r) { return {r.ta, r.tb, r.rows, r.cols, r.inner}; }

double median(std::vector<double> list) {
  std::ranges::sort(list);
  return list[list.size() / 2];
}

// One shape: how long it took in each pass, and alone on each library right after that pass.
struct Product {
  int count = 0;  // in one pass
  std::vector<double> inside, dnnl, openblas;
};

void run_alone(const Shape& shape, Product& p, std::vector<float>& a, std::vector<float>& b, std::vector<float>& c) {
  const auto [ta, tb, m, n, k] = shape;
  const auto lda = ta == Trans::no ? k : m;
  const auto ldb = tb == Trans::no ? n : k;
  a.resize(std::max(a.size(), static_cast<std::size_t>(m * k)), 0.5F);
  b.resize(std::max(b.size(), static_cast<std::size_t>(k * n)), 0.5F);
  c.resize(std::max(c.size(), static_cast<std::size_t>(m * n)));
  double start = now();
  dnnl_sgemm(ta == Trans::no ? 'N' : 'T', tb == Trans::no ? 'N' : 'T', m, n, k, 1, a.data(), lda, b.data(), ldb, 0, c.data(), n);
  p.dnnl.push_back(now() - start);
  start = now();
  cblas_sgemm(CblasRowMajor, ta == Trans::no ? CblasNoTrans : CblasTrans, tb == Trans::no ? CblasNoTrans : CblasTrans, static_cast<int>(m),
              static_cast<int>(n), static_cast<int>(k), 1, a.data(), static_cast<int>(lda), b.data(), static_cast<int>(ldb), 0, c.data(),
              static_cast<int>(n));
  p.openblas.push_back(now() - start);
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
  Pass<float> pass(graph, batch);
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
  std::map<Shape, Product> products;
  std::vector<float> x, y, z;
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
      Product& product = products[shape_of(r)];
      ++product.count;
      product.inside.push_back(r.seconds);
      work += flops(r);
    }
    for (auto& [shape, product] : products) {
      for (int repeat = 0; repeat < std::min(product.count, 4); ++repeat) run_alone(shape, product, x, y, z);
    }
  }
  double inside = 0, alone = 0;
  for (const auto& [shape, product] : products) {
    inside += product.count * median(product.inside);
    alone += product.count * std::min(median(product.dnnl), median(product.openblas));
  }
  fmt::print(R"({{"batch": {}, "seq": {}, "median_s": {:.4f}, "plain_median_s": {:.4f}, "products_s": {:.4f}, "products_alone_s": {:.4f}, )"
             R"("product_gflops": {:.1f}, "fma_peak_gflops": {:.1f}, "peak_rss_mb": {:.0f}}})"
             "\n",
             batch.sequences, batch.length, median(with), median(without), inside, alone, work / inside * 1e-9, fma_peak() * 1e-9, peak_mb);
  return 0;
}
