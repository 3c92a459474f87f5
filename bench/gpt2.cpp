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

#include "stepzero/io/tokens.hpp"
#include "stepzero/models/build.hpp"
#include "stepzero/models/model.hpp"
#include "stepzero/walks/measure.hpp"

namespace {

using namespace stepzero;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double flops(const GemmRecord& r) { return 2.0 * static_cast<double>(r.rows) * static_cast<double>(r.cols) * static_cast<double>(r.inner); }

using Shape = std::tuple<Trans, Trans, Index, Index, Index>;
Shape shape_of(const GemmRecord& r) { return {r.ta, r.tb, r.rows, r.cols, r.inner}; }

// Median seconds of one product alone, on the better of oneDNN and OpenBLAS.
double alone(const Shape& shape, std::vector<float>& a, std::vector<float>& b, std::vector<float>& c) {
  const auto [ta, tb, m, n, k] = shape;
  const auto lda = ta == Trans::no ? k : m;
  const auto ldb = tb == Trans::no ? n : k;
  const std::size_t sizes[] = {static_cast<std::size_t>(m * k), static_cast<std::size_t>(k * n), static_cast<std::size_t>(m * n)};
  a.resize(std::max(a.size(), sizes[0]), 0.5F);
  b.resize(std::max(b.size(), sizes[1]), 0.5F);
  c.resize(std::max(c.size(), sizes[2]));
  const int repeats = std::clamp(static_cast<int>(2e10 / (2.0 * static_cast<double>(m * n * k))), 5, 40);
  std::vector<double> one, other;
  for (int i = 0; i < repeats; ++i) {
    double start = now();
    dnnl_sgemm(ta == Trans::no ? 'N' : 'T', tb == Trans::no ? 'N' : 'T', m, n, k, 1, a.data(), lda, b.data(), ldb, 0, c.data(), n);
    one.push_back(now() - start);
    start = now();
    cblas_sgemm(CblasRowMajor, ta == Trans::no ? CblasNoTrans : CblasTrans, tb == Trans::no ? CblasNoTrans : CblasTrans,
                static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), 1, a.data(), static_cast<int>(lda), b.data(),
                static_cast<int>(ldb), 0, c.data(), static_cast<int>(n));
    other.push_back(now() - start);
  }
  std::ranges::nth_element(one, one.begin() + repeats / 2);
  std::ranges::nth_element(other, other.begin() + repeats / 2);
  return std::min(one[static_cast<std::size_t>(repeats / 2)], other[static_cast<std::size_t>(repeats / 2)]);
}

// Fused multiply-adds the cores can do, flop/s: 10 independent chains of the widest vectors the compiler may use.
__attribute__((target("avx512f"))) double fma_chain(Index steps) {
  using V = float __attribute__((vector_size(64)));
  V x[10];
  for (int i = 0; i < 10; ++i) x[i] = V{} + static_cast<float>(i);
  const V a = V{} + 0.999F;
  const V b = V{} + 1e-3F;
  for (Index s = 0; s < steps; ++s) {
    for (auto& v : x) asm("vfmadd213ps %2, %1, %0" : "+v"(v) : "v"(a), "v"(b));
  }
  V sum = V{};
  for (const auto& v : x) sum += v;
  return static_cast<double>(sum[0]);
}

double fma_peak() {
  if (!__builtin_cpu_supports("avx512f")) return std::nan("");
  constexpr Index steps = 20'000'000;
  double best = 0;
  volatile double sink = 0;
  for (int i = 0; i < 3; ++i) {
    const double start = now();
    parallel_for(threads(), [&](Index) { sink = fma_chain(steps); });
    best = std::max(best, threads() * 2.0 * 16 * 10 * static_cast<double>(steps) / (now() - start));
  }
  (void)sink;
  return best;
}

struct Times {
  std::vector<double> seconds;
  [[nodiscard]] double best() const { return *std::ranges::min_element(seconds); }
  [[nodiscard]] double median() const {
    auto sorted = seconds;
    std::ranges::sort(sorted);
    return sorted[sorted.size() / 2];
  }
};

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, int fallback) { return argc > i ? std::atoi(argv[i]) : fallback; };
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

  Times with, without;
  std::vector<GemmRecord> log;
  std::vector<double> product_seconds;
  std::map<Shape, std::vector<double>> inside;
  for (int i = 0; i < number(3, 5); ++i) {
    log.clear();
    set_gemm_log(&log);
    double start = now();
    measure_pass(pass, graph, batch, signal);
    with.seconds.push_back(now() - start);
    set_gemm_log(nullptr);
    double products = 0;
    for (const GemmRecord& r : log) products += r.seconds;
    product_seconds.push_back(products);
    start = now();
    pass.forward();
    pass.backward();
    without.seconds.push_back(now() - start);
  }
  const double peak_mb = static_cast<double>(peak_memory()) * 1e-6;
  std::map<Shape, int> counts;
  double work = 0;
  for (const GemmRecord& r : log) {
    ++counts[shape_of(r)];
    work += flops(r);
  }
  double best_alone = 0;
  std::vector<float> x, y, z;
  for (const auto& [shape, count] : counts) best_alone += count * alone(shape, x, y, z);
  std::ranges::sort(product_seconds);
  const double products = product_seconds[product_seconds.size() / 2];
  fmt::print(
      R"({{"batch": {}, "seq": {}, "best_s": {:.4f}, "median_s": {:.4f}, "plain_best_s": {:.4f}, "plain_median_s": {:.4f}, )"
      R"("products_s": {:.4f}, "products_alone_s": {:.4f}, "product_gflops": {:.1f}, "fma_peak_gflops": {:.1f}, "peak_rss_mb": {:.0f}}})"
      "\n",
      batch.sequences, batch.length, with.best(), with.median(), without.best(), without.median(), products, best_alone,
      work / products * 1e-9, fma_peak() * 1e-9, peak_mb);
  return 0;
}
