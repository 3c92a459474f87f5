// The accuracy of predict: a grid of architectures, schemes, widths, depths and token statistics, each predicted and
// then measured over enough draws. Prints the percentiles of the error, net of the measurement's own noise, by quantity.
// Measurements that were stored are not drawn again; predictions can be frozen, and compared with later ones to the bit.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/accuracy_grid.hpp"
#include "bench/accuracy_store.hpp"
#include "stepzero/core/memory.hpp"
#include "stepzero/io/tokens.hpp"
#include "stepzero/models/build.hpp"
#include "stepzero/models/model.hpp"
#include "stepzero/pass/measure.hpp"
#include "stepzero/signal/comparison.hpp"
#include "stepzero/theory/predict.hpp"
#include "stepzero/theory/scheme_profile.hpp"

using namespace stepzero;

namespace {

struct Quantity {
  const char* name;
  double median, top;  // bounds of the error: 50 and 99 percent; 0: none
};
constexpr std::array quantities = std::to_array<Quantity>({
    {"forward second moment", 0.01, 0.04},
    {"gradient second moment", 0.01, 0.05},
    {"gradient norm of weights", 0.015, 0.06},
    {"gradient norm of q, k", 0.04, 0.15},
    {"token cosine", 0.005, 0.02},
    {"attention entropy", 0.01, 0.05},
    {"loss", 0.005, 0.03},
    {"global gradient norm", 0.01, 0.04},
    {"gradient norm of vectors", 0, 0},
    {"gradient token cosine", 0, 0},
    {"score variance", 0, 0},
});

// -1: not a quantity of the table
int quantity_of(const Comparison& c, const std::map<std::string, Role, std::less<>>& roles) {
  if (c.what == "loss") return 6;
  if (c.where == "gradient" && c.what == "norm") return 7;
  if (c.what == "second moment") return 0;
  if (c.what == "gradient second moment") return 1;
  if (c.what == "token cosine") return 4;
  if (c.what == "gradient token cosine") return 9;
  if (c.what == "entropy") return 5;
  if (c.what == "score variance") return 10;
  const auto role = roles.find(c.where);
  if (c.what != "gradient norm" || role == roles.end()) return -1;
  if (role->second == Role::query || role->second == Role::key) return 3;
  return role->second == Role::gain || role->second == Role::bias ? 8 : 2;
}

struct Miss {
  double net, noise, signed_error, spread;  // spread: the predicted over the measured one of single draws; 0: none
  std::string where;
};
using Errors = std::array<std::vector<Miss>, quantities.size()>;

// One number of all misses, ascending.
std::vector<double> sorted(const std::vector<Miss>& list, double Miss::* member) {
  std::vector<double> out;
  for (const Miss& m : list) out.push_back(m.*member);
  std::ranges::sort(out);
  return out;
}

std::string spreads(const std::vector<Miss>& list) {
  std::vector<double> ratios;
  for (const Miss& m : list) {
    if (std::isfinite(m.spread) && m.spread > 0) ratios.push_back(m.spread);
  }
  if (ratios.empty()) return "";
  std::ranges::sort(ratios);
  return fmt::format("{:.2f}, {:.2f}, {:.2f}", percentile(ratios, 0.1), percentile(ratios, 0.5), percentile(ratios, 0.9));
}

Errors errors_of(const Signal& joined, const std::map<std::string, Role, std::less<>>& roles) {
  Errors out;
  for (const Comparison& c : compare(joined)) {
    const int q = quantity_of(c, roles);
    if (q < 0) continue;
    // a part of a gradient that is a billionth of the whole (a single token's queries) is rounding
    const double whole = joined.gradient_norm.measured.value_or(0), least = 1e-9 * whole;
    const bool square = c.what == "gradient second moment";
    if (c.what.starts_with("gradient") && c.what != "gradient token cosine" && std::abs(c.measured) < (square ? least * least : least))
      continue;
    const bool absolute = q == 4 || q == 5 || q == 6 || q == 9;
    const double noise = absolute ? c.standard_error : c.standard_error / std::max(std::abs(c.measured), 1e-300);
    out[static_cast<std::size_t>(q)].push_back({std::sqrt(std::max(0.0, c.error * c.error - noise * noise)), noise, c.error,
                                                c.spread / (c.standard_error * std::sqrt(static_cast<double>(joined.seeds))), c.where});
  }
  return out;
}

// The standard error of every quantity is a third of its bound: for nearly all nodes of the top's, and for half of them of the
// median's, unless that takes too many draws.
bool quiet(const Errors& errors, bool medians) {
  for (std::size_t q = 0; q < quantities.size(); ++q) {
    if (quantities[q].median == 0) continue;
    const auto noise = sorted(errors[q], &Miss::noise);
    if (noise.empty()) continue;
    if (medians && percentile(noise, 0.5) > quantities[q].median / 3) return false;
    if (percentile(noise, 0.99) > quantities[q].top / 3) return false;
  }
  return true;
}

struct Options {
  std::string only, stored, store, freeze, against, without, order = "draws";
  bool suite = false;  // the rows that the test suite judges
  int most = 400;
  std::size_t worst = 0;
  bool check = false;
};

struct Result {
  Errors errors;
  int seeds = 0;
  std::optional<Changed> change;
};

struct Subject {
  Architecture a;
  const Scheme* scheme;
  Graph graph;
  Batch batch;
  std::map<std::string, Role, std::less<>> roles;

  explicit Subject(const Case& c) : a(load_model(c.preset).value()), scheme(find_scheme(c.scheme).value()) {
    for (const std::string& assignment : c.set) set_field(a, assignment).value();
    resolve(a).value();
    adapt(a, *scheme, profile).value();
    graph = build_graph(a);
    batch =
        make_batch({.source = c.tokens, .length = c.length, .sequences = c.sequences, .vocab = a.vocab, .positions = a.positions}).value();
    for (const Param& p : graph.params) roles[p.name] = p.role;
  }
};

Signal draw(const Case& c, const Subject& m, const Signal& theory, int most) {
  MeasureOptions options{
      .scheme = m.scheme, .weights = {}, .weightless = !c.real, .seed = 1000, .seeds = 8 * most, .enough = {}, .progress = {}, .warn = {}};
  options.enough = [&](const Ensemble& ensemble) {
    return ensemble.count() % 16 == 0 && ensemble.count() >= 32 &&
           quiet(errors_of(join(theory, ensemble.result()), m.roles), ensemble.count() < most);
  };
  return measure(m.graph, m.a, m.batch, options).value();
}

PredictOptions predict_options(const Options& o) {
  PredictOptions out{.order = o.order == "limit" ? Order::limit : o.order == "fluctuations" ? Order::fluctuations : Order::draws};
  for (const FluctuationField& field : fluctuation_fields()) {
    if (field.name == o.without) out.without = &field;
  }
  return out;
}

Result run(const Case& c, const Options& o) {
  const Subject m(c);
  const Signal theory = predict(m.graph, m.a, m.batch, *m.scheme, predict_options(o));
  Result out;
  if (!o.freeze.empty()) store_predicted(theory, file_of_row(o.freeze, c.name));
  if (!o.against.empty()) {
    const auto frozen = read_stored(file_of_row(o.against, c.name));
    out.change = frozen ? changed(theory, *frozen) : Changed{};
  }
  if (!o.freeze.empty() || !o.against.empty()) return out;
  const auto stored = o.stored.empty() ? std::nullopt : read_stored(file_of_row(o.stored, c.name));
  if (!o.stored.empty() && !stored) fmt::print(stderr, "{}: no measurement is stored; drawn anew\n", c.name);
  Signal both;
  if (stored) {
    both = join_stored(theory, *stored);
  } else {
    const Signal real = draw(c, m, theory, o.most);
    if (!o.store.empty()) store_measured(real, file_of_row(o.store, c.name));
    both = join(theory, real);
  }
  out.errors = errors_of(both, m.roles);
  out.seeds = both.seeds;
  return out;
}

void print_row(const std::string& name, const Result& r) {
  std::string line = fmt::format("| {} | {} |", name, r.seeds);
  for (std::size_t q = 0; q < 8; ++q) {
    const auto net = sorted(r.errors[q], &Miss::net);
    line += net.empty() ? " - |" : fmt::format(" {:.2f} / {:.2f} |", 100 * percentile(net, 0.5), 100 * percentile(net, 0.99));
  }
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

// more: how much more than the bounds is allowed.
bool print_table(const Errors& all, std::size_t worst, double more) {
  bool good = true;
  fmt::print(
      "\n| quantity | n | median | 90 % | 99 % | worst | bounds | noise, median | spread: predicted / measured, 10, 50, 90 % "
      "|\n|---|---|---|---|---|---|---|---|---|\n");
  for (std::size_t q = 0; q < quantities.size(); ++q) {
    const auto net = sorted(all[q], &Miss::net);
    if (net.empty()) continue;
    const Quantity& quantity = quantities[q];
    const double median = percentile(net, 0.5), top = percentile(net, 0.99);
    const bool bound = quantity.median > 0;
    const bool met = !bound || (median <= more * quantity.median && top <= more * quantity.top);
    good = good && met;
    fmt::print("| {} | {} | {:.4f} | {:.4f} | {:.4f} | {:.4f} | {} | {:.4f} | {} |\n", quantity.name, net.size(), median,
               percentile(net, 0.9), top, net.back(),
               bound ? fmt::format("{:.4g} / {:.4g}{}", more * quantity.median, more * quantity.top, met ? "" : " NOT MET") : "",
               percentile(sorted(all[q], &Miss::noise), 0.5), spreads(all[q]));
  }
  for (std::size_t q = 0; worst > 0 && q < quantities.size(); ++q) {
    auto list = all[q];
    std::ranges::sort(list, [](const Miss& a, const Miss& b) { return a.net > b.net; });
    fmt::print("\nworst of {}:\n", quantities[q].name);
    for (std::size_t i = 0; i < std::min(worst, list.size()); ++i)
      fmt::print("  {:+.4f} (noise {:.4f})  {}\n", list[i].signed_error, list[i].noise, list[i].where);
  }
  return good;
}

constexpr const char* usage =
    "usage: bench_accuracy [--only WORD] [--most SEEDS] [--worst N] [--check]\n"
    "                      [--store DIR | --stored DIR]   keep the measurements; use those that were kept\n"
    "                      [--order limit|fluctuations|draws] [--without FIELD]   layers of the theory; FIELD of the fluctuations held\n"
    "                      [--suite]                      only the rows that the test suite judges\n"
    "                      [--freeze DIR | --against DIR] keep the predictions; compare with those that were kept\n";

std::optional<Options> read_options(int argc, char** argv) {
  Options o;
  const std::map<std::string, std::string*> words = {{"--only", &o.only},     {"--store", &o.store},     {"--stored", &o.stored},
                                                     {"--freeze", &o.freeze}, {"--against", &o.against}, {"--without", &o.without},
                                                     {"--order", &o.order}};
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const auto word = words.find(flag);
    if (flag == "--check" || flag == "--suite")
      (flag == "--check" ? o.check : o.suite) = true;
    else if (i + 1 == argc)
      return {};
    else if (word != words.end())
      *word->second = argv[++i];
    else if (flag == "--most")
      o.most = std::atoi(argv[++i]);
    else if (flag == "--worst")
      o.worst = static_cast<std::size_t>(std::atoi(argv[++i]));
    else
      return {};
  }
  return o;
}

// Every row's change since the predictions were frozen; true if there is none.
bool print_change(const std::string& name, const Changed& c) {
  fmt::print("{}: {} of {} values changed, the largest by {:.2g} ({}); {} spreads, by {:.2g}\n", name, c.values, c.numbers, c.value,
             c.where, c.spreads, c.spread);
  std::fflush(stdout);
  return c.numbers > 0 && c.values == 0 && c.spreads == 0;
}

}  // namespace

int main(int argc, char** argv) {
  const auto options = read_options(argc, argv);
  if (!options) {
    fmt::print(stderr, "{}", usage);
    return 2;
  }
  const Options& o = *options;
  keep_freed_memory();
  for (const std::string& dir : {o.freeze, o.store}) {
    if (!dir.empty()) std::filesystem::create_directories(dir);
  }
  const bool judged = o.freeze.empty() && o.against.empty();
  if (judged) {
    fmt::print("median / 99 % of the error net of noise, in percent (cosine, entropy, loss: absolute, times 100)\n\n");
    fmt::print("| model | draws | E[x^2] | gradient E[d^2] | weights | q, k | cosine | entropy | loss | gradient norm |\n");
    fmt::print("|---|---|---|---|---|---|---|---|---|---|\n");
  }
  Errors all;
  bool same = true;
  for (const Case& c : grid()) {
    if (c.name.find(o.only) == std::string::npos || (o.suite && !in_suite(c))) continue;
    const std::string name = fmt::format("{}; {}, {} x {}, {}", c.name, c.scheme, c.sequences, c.length, c.tokens);
    const Result r = run(c, o);
    if (r.change) same = print_change(name, *r.change) && same;
    if (!judged) continue;
    print_row(name, r);
    for (std::size_t q = 0; q < quantities.size(); ++q) {
      for (const Miss& e : r.errors[q]) all[q].push_back({e.net, e.noise, e.signed_error, e.spread, c.name + ": " + e.where});
    }
  }
  if (!judged) return same ? 0 : 1;
  // the suite has the rows that are hardest: the bounds are for the whole grid
  const bool good = print_table(all, o.worst, o.suite ? 1.2 : 1);
  return o.check && !good ? 1 : 0;
}
