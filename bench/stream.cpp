// What a streamed pass cannot do without: its matrix products at the library's speed and its normals at the generator's. Checks
// first: one layer of the model, streamed, gives the bits of the whole pass. Prints one JSON line for bench/run.py.
//
//     bench_stream MODEL SEQ THREADS
#include <cstdlib>
#include <map>
#include <string>

#include <fmt/format.h>

#include "bench/alone.hpp"
#include "stepzero/io/tokens.hpp"
#include "stepzero/kernels/fill.hpp"
#include "stepzero/models/build.hpp"
#include "stepzero/models/model.hpp"
#include "stepzero/pass/measure.hpp"
#include "stepzero/report/json.hpp"

namespace {

using namespace stepzero;
using bench::now;

// A model of that many layers; 0: its own number.
struct Subject {
  Architecture a;
  Graph graph;

  Subject(const char* name, Index layers) : a(load_model(name).value()) {
    if (layers > 0) a.layers = layers;
    resolve(a).value();
    graph = build_graph(a);
  }
};

struct Run {
  std::string json;
  std::map<bench::Shape, int> products;
};

Run run(const Subject& subject, Index length, bool stream) {
  std::vector<GemmRecord> log;
  set_gemm_log(&log);
  const Batch batch = make_batch({.source = "zipf", .length = length, .vocab = subject.a.vocab, .positions = subject.a.positions}).value();
  const auto signal = measure(subject.graph, subject.a, batch, {.scheme = *find_scheme("hf"), .stream = stream});
  set_gemm_log(nullptr);
  Run result{to_json(signal.value()), {}};
  for (const GemmRecord& r : log) ++result.products[bench::shape_of(r)];
  return result;
}

// Seconds for so many normals, made in pieces that stay in the cache.
double time_of_normals(double count) {
  constexpr std::size_t piece = 1 << 16;
  constexpr Index pieces = 4096;
  const Stream stream = make_stream(1, "bench");
  const double start = now();
  parallel_for(pieces, [&](Index i) {
    thread_local std::vector<float> numbers(piece);
    fill(Distribution::normal(0.02), stream, static_cast<std::uint64_t>(i) * piece, std::span<float>(numbers));
  });
  return (now() - start) * count / (static_cast<double>(pieces) * piece);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "bench_stream MODEL SEQ THREADS\n");
    return 2;
  }
  keep_freed_memory();
  const Index length = std::atoi(argv[2]);
  set_threads(std::atoi(argv[3]));
  const Subject one(argv[1], 1), two(argv[1], 2), all(argv[1], 0);
  const Run first = run(one, length, true), second = run(two, length, true);
  if (first.json != run(one, length, false).json) {
    fmt::print(stderr, "streamed and whole pass differ\n");
    return 1;
  }

  // every layer asks for the same products
  bench::Operands memory;
  double seconds = 0, work = 0;
  for (const auto& [shape, count] : second.products) {
    const auto before = first.products.find(shape);
    const int once = before == first.products.end() ? 0 : before->second;
    bench::Product product{.count = once + static_cast<int>(all.a.layers - 1) * (count - once)};
    for (int repeat = 0; repeat < 3; ++repeat) run_alone(shape, product, memory);
    seconds += product.count * product.alone();
    const auto [ta, tb, m, n, k] = shape;
    work += product.count * 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
  const double normals = 2 * static_cast<double>(all.graph.parameter_count());  // on the way down and on the way up
  fmt::print(R"({{"products_s": {:.3f}, "tflop": {:.3f}, "normals_s": {:.3f}, "billion_normals": {:.2f}}})"
             "\n",
             seconds, work * 1e-12, time_of_normals(normals), normals * 1e-9);
  return 0;
}
