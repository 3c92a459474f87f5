// The accuracy of the predicted first step: families at small size, schemes and optimizers, each predicted and then measured over a few
// draws of real weights, or held against what was measured before. Prints the percentiles of the error, net of the measurement's own noise,
// by quantity and optimizer.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/accuracy_step_grid.hpp"
#include "bench/accuracy_step_store.hpp"
#include "stepzero/core/memory.hpp"
#include "stepzero/io/tokens.hpp"
#include "stepzero/models/build.hpp"
#include "stepzero/models/model.hpp"
#include "stepzero/pass/measure.hpp"
#include "stepzero/signal/comparison.hpp"
#include "stepzero/theory/predict_step.hpp"
#include "stepzero/theory/scheme_profile.hpp"

using namespace stepzero;

namespace {

struct Quantity {
  const char* name;
  double median, top;  // bounds of the error: 50 and 99 percent; 0: none
};
enum Which {
  streams,
  scores,
  logits,
  directs,
  norms,
  first_order,
  shares_matrices,
  shares_queries,
  shares_vectors,
  after,
  branches,
  count
};
constexpr Quantity quantities[count] = {
    {"change of streams", 0.02, 0.08},
    {"change of scores", 0.02, 0.08},
    {"change of logits", 0.02, 0.08},
    {"direct change of matrices", 0.01, 0.05},
    {"norm of updates", 0, 0},
    {"decrease of the loss, first order", 0.02, 0.06},
    {"its share by matrices and tables", 0, 0},
    {"its share by queries and keys", 0, 0},
    {"its share by gains and biases", 0, 0},
    {"decrease of the loss", 0, 0},
    {"change of other wires", 0, 0},
};

struct Miss {
  double error, noise;
  std::string where;
  [[nodiscard]] double net() const { return std::sqrt(std::max(0.0, error * error - noise * noise)); }
};
using Errors = std::vector<std::vector<Miss>>;

struct Options {
  std::string only, optimizer, store, stored;
  int seeds = 0;  // 0: those of the table
  std::size_t worst = 0;
  bool search = false, all = false;
  double effort = 1;
};

// Signed error of the prediction, relative, if both are there and the number is more than rounding.
void add(Errors& to, Which which, const Value& v, double least, const std::string& where) {
  if (!v.predicted || !v.measured || !(std::abs(*v.measured) > least)) return;
  to[which].push_back({*v.predicted / *v.measured - 1, v.standard_error.value_or(0) / std::abs(*v.measured), where});
}

Value joined(const Value& predicted, const Value& measured) {
  Value v = measured;
  v.predicted = predicted.predicted;
  return v;
}

Errors compare_steps(const Graph& graph, const StepSignal& p, const StepSignal& m, const std::string& name) {
  Errors e(count);
  for (std::size_t i = 0; i < m.wires.size(); ++i) {
    const Value v = joined(p.wires[i].change, m.wires[i].change);
    const bool head = i == m.logits;
    add(e,
        head                                                                                ? logits
        : graph.nodes[i].is_stream() || std::holds_alternative<Residual>(graph.nodes[i].op) ? streams
                                                                                            : branches,
        v, 1e-12, name + ": " + m.wires[i].name);
  }
  for (std::size_t i = 0; i < m.attention.size(); ++i)
    add(e, scores, joined(p.attention[i].change, m.attention[i].change), 1e-12, name + ": " + m.attention[i].name);
  const double total = std::abs(m.first_order.measured.value_or(0));
  for (std::size_t k = 0; k < m.parameters.size(); ++k) {
    const Param& param = graph.params[k];
    const std::string where = name + ": " + param.name;
    const bool matrix = param.rows() > 1 && param.cols() > 1;
    const bool queries = param.role == Role::query || param.role == Role::key;
    add(e, norms, joined(p.parameters[k].update_norm, m.parameters[k].update_norm), 1e-12, where);
    if (matrix) add(e, directs, joined(p.parameters[k].direct_change, m.parameters[k].direct_change), 1e-12, where);
    add(e,
        queries && matrix ? shares_queries
        : matrix          ? shares_matrices
                          : shares_vectors,
        joined(p.parameters[k].decrease, m.parameters[k].decrease), 1e-5 * total, where);
  }
  add(e, first_order, joined(p.first_order, m.first_order), 0, name);
  Value drop;
  drop.predicted = *p.before.predicted - *p.after.predicted;
  drop.measured = *m.before.measured - *m.after.measured;
  add(e, after, drop, 0, name);
  return e;
}

double percentile_of(std::vector<double> list, double p) {
  std::ranges::sort(list);
  return percentile(list, p);
}

void print_errors(const Errors& errors, std::size_t worst) {
  fmt::print("| quantity | n | bias | median | 90 % | 99 % | worst | bounds | noise, median |\n|---|---|---|---|---|---|---|---|---|\n");
  for (int q = 0; q < count; ++q) {
    if (errors[q].empty()) continue;
    std::vector<double> net, noise, bias;
    for (const Miss& m : errors[q]) net.push_back(m.net()), noise.push_back(m.noise), bias.push_back(m.error);
    fmt::print("| {} | {} | {:+.4f} | {:.4f} | {:.4f} | {:.4f} | {:.4f} | {} | {:.4f} |\n", quantities[q].name, net.size(),
               percentile_of(bias, 0.5), percentile_of(net, 0.5), percentile_of(net, 0.9), percentile_of(net, 0.99), percentile_of(net, 1),
               quantities[q].median > 0 ? fmt::format("{:.4g} / {:.4g}", quantities[q].median, quantities[q].top) : "",
               percentile_of(noise, 0.5));
  }
  for (int q = 0; worst > 0 && q < count; ++q) {
    auto list = errors[q];
    std::ranges::sort(list, [](const Miss& a, const Miss& b) { return a.net() > b.net(); });
    if (!list.empty()) fmt::print("\nworst of {}:\n", quantities[q].name);
    for (std::size_t i = 0; i < std::min(worst, list.size()); ++i)
      fmt::print("  {:+.4f} (noise {:.4f})  {}\n", list[i].error, list[i].noise, list[i].where);
  }
  std::fflush(stdout);
}

struct Subject {
  Architecture a;
  const Scheme* scheme;
  Graph graph;
  Batch batch;

  explicit Subject(const Case& c) : a(load_model(c.preset).value()), scheme(find_scheme(c.scheme).value()) {
    for (const std::string& assignment : c.set) set_field(a, assignment).value();
    resolve(a).value();
    adapt(a, *scheme, profile).value();
    graph = build_graph(a);
    batch =
        make_batch({.source = c.tokens, .length = c.length, .sequences = c.sequences, .vocab = a.vocab, .positions = a.positions}).value();
  }

  [[nodiscard]] Expected<PredictedStep> predict(const OptimizerOptions& optimizer, double effort,
                                                const std::vector<double>& factors) const {
    return predict_step(graph, a, batch, Assignment(graph, a, *scheme), std::string(scheme->name),
                        {.optimizer = optimizer, .factors = factors, .effort = effort});
  }
  [[nodiscard]] Signal measure_step(const OptimizerOptions& optimizer, int seeds, bool search) const {
    MeasureOptions how{.scheme = scheme, .seed = 1000, .seeds = seeds};
    how.step = {.steps = 1, .optimizer = optimizer, .rates = {}, .search = search};
    return measure(graph, a, batch, how).value();
  }
  [[nodiscard]] double largest(const StepSignal& step, std::optional<double> Value::* which) const {
    double top = 0;
    for (std::size_t i = 0; i < step.wires.size(); ++i) {
      if (std::holds_alternative<Residual>(graph.nodes[i].op)) top = std::max(top, (step.wires[i].relative.*which).value_or(0));
    }
    return top;
  }
};

// With the rates at which the stream that changes most does by so much.
OptimizerOptions scaled_to(const Subject& m, const StepOptimizer& o) {
  OptimizerOptions options = settled(o.options).value();
  if (o.relative == 0) return options;
  const auto tried = m.predict(options, 0.25, {});
  const double top = tried ? m.largest(tried->step(), &Value::predicted) : 0;
  if (!(top > 0)) return options;
  *options.rate *= o.relative / top;
  *options.rate_adamw *= o.relative / top;
  return options;
}

double median_net(const std::vector<Miss>& list, double p) {
  std::vector<double> net;
  for (const Miss& m : list) net.push_back(m.net());
  return net.empty() ? 0 : percentile_of(net, p);
}

void print_all(const Subject& m, const StepSignal& predicted, const StepSignal& measured) {
  const auto ratio = [](const Value& a, const Value& b) {
    return a.predicted && b.measured && *b.measured != 0 ? *a.predicted / *b.measured : NAN;
  };
  for (std::size_t i = 0; i < measured.wires.size(); ++i) {
    const auto &p = predicted.wires[i], &q = measured.wires[i];
    fmt::print("  {:28} {:16} change {:.4g} ratio {:.3f} direct {:.3f} carried {:.3f}\n", q.name, q.kind, q.change.measured.value_or(NAN),
               ratio(p.change, q.change), ratio(p.direct, q.direct), ratio(p.carried, q.carried));
  }
  for (std::size_t i = 0; i < measured.attention.size(); ++i) {
    fmt::print("  {:28} scores change {:.4g} predicted {:.4g}\n", measured.attention[i].name,
               measured.attention[i].change.measured.value_or(NAN), predicted.attention[i].change.predicted.value_or(NAN));
  }
  for (std::size_t k = 0; k < m.graph.params.size(); ++k) {
    const auto &p = predicted.parameters[k], &q = measured.parameters[k];
    fmt::print("  {:40} norm {:.3f} direct {:.3f} decrease {:.3f} of {:.3g}\n", q.name, ratio(p.update_norm, q.update_norm),
               ratio(p.direct_change, q.direct_change), ratio(p.decrease, q.decrease), q.decrease.measured.value_or(NAN));
  }
}

// The table of the step: every model under every optimizer.
void run_steps(const Options& o) {
  std::map<std::string, Errors> all;
  Errors together(count), realistic(count);
  const int seeds = o.seeds > 0 ? o.seeds : 24;
  fmt::print("| model | optimizer | rate | largest change of a stream | streams | scores | logits | direct | first order | decrease |\n");
  fmt::print("|---|---|---|---|---|---|---|---|---|---|\n");
  for (const Case& c : step_grid()) {
    if (c.name.find(o.only) == std::string::npos) continue;
    const Subject m(c);
    const StepStore store(o.stored.empty() ? o.store : o.stored, c.name);
    for (const StepOptimizer& optimizer : step_optimizers()) {
      if (!o.optimizer.empty() && optimizer.name != o.optimizer) continue;
      const std::string name = fmt::format("{}, {}", c.name, optimizer.name);
      const StoredStep* kept = store.find(optimizer.name);
      if (kept == nullptr && !o.stored.empty()) {
        fmt::print(stderr, "{}: no step is stored\n", name);
        continue;
      }
      OptimizerOptions options = kept != nullptr ? settled(optimizer.options).value() : scaled_to(m, optimizer);
      if (kept != nullptr) options.rate = kept->rate, options.rate_adamw = kept->rate_adamw;
      const auto predicted = m.predict(options, o.effort, {});
      if (!predicted) {
        fmt::print(stderr, "{}: {}\n", name, predicted.error().message);
        continue;
      }
      const StepSignal measured = kept != nullptr ? measured_of(*kept, predicted->step()) : m.measure_step(options, seeds, false).steps[0];
      if (!o.store.empty()) store.keep(optimizer.name, *options.rate, options.rate_adamw.value_or(0), seeds, m.graph, measured);
      const Errors errors = compare_steps(m.graph, predicted->step(), measured, name);
      const auto both = [&](Which q) {
        return fmt::format("{:.1f} / {:.1f}", 100 * median_net(errors[q], 0.5), 100 * median_net(errors[q], 0.99));
      };
      const auto one = [&](Which q) {
        return errors[q].empty() ? "-" : fmt::format("{:+.1f} ({:.1f})", 100 * errors[q][0].error, 100 * errors[q][0].noise);
      };
      fmt::print("| {} | {} | {:.2g} | {:.2g} | {} | {} | {} | {} | {} | {} |\n", c.name, optimizer.name, *options.rate,
                 m.largest(measured, &Value::measured), both(streams), both(scores), one(logits), both(directs), one(first_order),
                 one(after));
      std::fflush(stdout);
      if (o.all) print_all(m, predicted->step(), measured);
      Errors& to = all.try_emplace(optimizer.name, Errors(count)).first->second;
      Errors& of_all = optimizer.relative > 0 ? together : realistic;
      for (int q = 0; q < count; ++q) {
        to[q].insert(to[q].end(), errors[q].begin(), errors[q].end());
        of_all[q].insert(of_all[q].end(), errors[q].begin(), errors[q].end());
      }
    }
  }
  for (const StepOptimizer& optimizer : step_optimizers()) {
    if (!all.contains(optimizer.name)) continue;
    fmt::print("\n## {}\n\n", optimizer.name);
    print_errors(all.at(optimizer.name), o.worst);
  }
  fmt::print("\n## Every optimizer, small changes\n\n");
  print_errors(together, 0);
  fmt::print("\n## Rates that people use\n\n");
  print_errors(realistic, 0);
}

// Loss against rate.
void run_search(const Options& o) {
  std::vector<double> errors, taken, ratios;
  int both = 0, none = 0, missed = 0, alarms = 0;
  fmt::print(
      "| model | scheme | optimizer | best rate, predicted | measured | share of the best decrease taken | error of the decrease, median | "
      "stops, predicted | measured |\n");
  fmt::print("|---|---|---|---|---|---|---|---|---|\n");
  for (const Case& c : search_grid()) {
    if (c.name.find(o.only) == std::string::npos) continue;
    const Subject m(c);
    for (const StepOptimizer& optimizer : step_optimizers()) {
      if (optimizer.relative == 0 || optimizer.name == "lion" || (!o.optimizer.empty() && optimizer.name != o.optimizer)) continue;
      const OptimizerOptions options = scaled_to(m, optimizer);
      const auto predicted = m.predict(options, 0.5 * o.effort, searched_rates());
      if (!predicted) continue;
      const Signal measured = m.measure_step(options, o.seeds > 0 ? o.seeds : 6, true);
      const StepSignal &p = predicted->step(), &q = measured.steps[0];
      const GoodRates at = predicted->good_rates, real = good_rates(q);
      const auto drop = [](const StepSignal& s, std::size_t k, std::optional<double> Value::* which) {
        return (s.before.*which).value_or(NAN) - (s.rates[k].loss.*which).value_or(NAN);
      };
      double top = 0, here = 0;
      std::vector<double> own;
      for (std::size_t k = 0; k < q.rates.size(); ++k) {
        top = std::max(top, drop(q, k, &Value::measured));
        if (real.best && q.rates[k].rate <= 1.01 * *real.best)
          own.push_back(std::abs(drop(p, k, &Value::predicted) / drop(q, k, &Value::measured) - 1));
      }
      // the measured curve at the predicted best rate, between the rates that were looked up
      for (std::size_t k = 0; at.best && k + 1 < q.rates.size(); ++k) {
        const double x = std::log(*at.best / q.rates[k].rate) / std::log(2.0);
        if (x >= 0 && x < 1) here = (1 - x) * drop(q, k, &Value::measured) + x * drop(q, k + 1, &Value::measured);
      }
      errors.insert(errors.end(), own.begin(), own.end());
      taken.push_back(here / top);
      if (at.stops && real.stops) ++both, ratios.push_back(*at.stops / *real.stops);
      if (!at.stops && !real.stops) ++none;
      if (!at.stops && real.stops) ++missed;
      if (at.stops && !real.stops) ++alarms;
      const auto tell = [](const std::optional<double>& x) { return x ? fmt::format("{:.2g}", *x) : "none"; };
      fmt::print("| {} | {} | {} | {} | {} | {:.3f} | {:.3f} | {} | {} |\n", c.name, c.scheme, optimizer.name, tell(at.best),
                 tell(real.best), here / top, own.empty() ? NAN : percentile_of(own, 0.5),
                 tell(at.stops) + (at.stops ? " (" + predicted->limited_by + ")" : ""), tell(real.stops));
      std::fflush(stdout);
    }
  }
  if (taken.empty()) return;
  const auto good =
      static_cast<double>(std::ranges::count_if(taken, [](double x) { return x >= 0.9; })) / static_cast<double>(taken.size());
  fmt::print(
      "\n{} combinations. Error of the decrease up to the best rate: median {:.1f} %, 95 % {:.1f} %. The predicted best rate takes at "
      "least 90 % of the best "
      "decrease in {:.1f} %.\n",
      taken.size(), 100 * percentile_of(errors, 0.5), 100 * percentile_of(errors, 0.95), 100 * good);
  fmt::print("Where the loss stops falling: {} both, {} none in either, {} missed, {} false alarms", both, none, missed, alarms);
  if (!ratios.empty()) {
    const auto within = std::ranges::count_if(ratios, [](double x) { return x > 0.5 && x < 2; });
    fmt::print("; predicted over measured {:.2f} in the median, within a factor of 2 in {} of {}", percentile_of(ratios, 0.5), within,
               ratios.size());
  }
  fmt::print(".\n");
}

std::optional<Options> read_options(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--search" || flag == "--all") {
      (flag == "--search" ? o.search : o.all) = true;
    } else if (i + 1 == argc) {
      return {};
    } else if (flag == "--only" || flag == "--optimizer" || flag == "--store" || flag == "--stored") {
      (flag == "--only" ? o.only : flag == "--optimizer" ? o.optimizer : flag == "--store" ? o.store : o.stored) = argv[++i];
    } else if (flag == "--seeds") {
      o.seeds = std::atoi(argv[++i]);
    } else if (flag == "--effort") {
      o.effort = std::atof(argv[++i]);
    } else if (flag == "--worst") {
      o.worst = static_cast<std::size_t>(std::atoi(argv[++i]));
    } else {
      return {};
    }
  }
  return o;
}

}  // namespace

int main(int argc, char** argv) {
  const auto options = read_options(argc, argv);
  if (!options) {
    fmt::print(stderr,
               "usage: bench_accuracy_step [--only WORD] [--optimizer NAME] [--seeds N] [--worst N] [--all] [--effort SHARE] [--search]\n"
               "                           [--store DIR | --stored DIR]   keep the measurements; use those that were kept\n");
    return 2;
  }
  keep_freed_memory();
  options->search ? run_search(*options) : run_steps(*options);
}
