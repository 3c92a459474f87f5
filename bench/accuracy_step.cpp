// The accuracy of the predicted first step: families at small size, schemes and optimizers, each predicted and then measured over a few
// draws of real weights. Prints the percentiles of the error, net of the measurement's own noise, by quantity and optimizer.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/accuracy_step_grid.hpp"
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
  std::string only, optimizer;
  int seeds = 24;
  std::size_t worst = 0;
  bool curve = false, all = false;
  double effort = 1;
};

// Signed error of the prediction, relative, if both are there and the number is more than rounding.
void add(Errors& to, Which which, const Value& v, double seeds, double least, const std::string& where) {
  if (!v.predicted || !v.measured || !(std::abs(*v.measured) > least)) return;
  (void)seeds;
  to[which].push_back({*v.predicted / *v.measured - 1, v.standard_error.value_or(0) / std::abs(*v.measured), where});
}

struct Result {
  Errors errors = Errors(count);
  StepSignal both;
  GoodRates predicted, measured;
};

Value joined(const Value& predicted, const Value& measured) {
  Value v = measured;
  v.predicted = predicted.predicted;
  return v;
}

Result compare_steps(const Graph& graph, const StepSignal& p, const StepSignal& m, const std::string& name) {
  Result out;
  Errors& e = out.errors;
  for (std::size_t i = 0; i < m.wires.size(); ++i) {
    const Value v = joined(p.wires[i].change, m.wires[i].change);
    const bool head = i == m.logits;
    add(e,
        head                                                                                ? logits
        : graph.nodes[i].is_stream() || std::holds_alternative<Residual>(graph.nodes[i].op) ? streams
                                                                                            : branches,
        v, 0, 1e-12, name + ": " + m.wires[i].name);
  }
  for (std::size_t i = 0; i < m.attention.size(); ++i)
    add(e, scores, joined(p.attention[i].change, m.attention[i].change), 0, 1e-12, name + ": " + m.attention[i].name);
  const double total = std::abs(m.first_order.measured.value_or(0));
  for (std::size_t k = 0; k < m.parameters.size(); ++k) {
    const Param& param = graph.params[k];
    const std::string where = name + ": " + param.name;
    const bool matrix = param.rows() > 1 && param.cols() > 1;
    const bool queries = param.role == Role::query || param.role == Role::key;
    add(e, norms, joined(p.parameters[k].update_norm, m.parameters[k].update_norm), 0, 1e-12, where);
    if (matrix) add(e, directs, joined(p.parameters[k].direct_change, m.parameters[k].direct_change), 0, 1e-12, where);
    add(e,
        queries && matrix ? shares_queries
        : matrix          ? shares_matrices
                          : shares_vectors,
        joined(p.parameters[k].decrease, m.parameters[k].decrease), 0, 1e-5 * total, where);
  }
  add(e, first_order, joined(p.first_order, m.first_order), 0, 0, name);
  Value drop;
  drop.predicted = *p.before.predicted - *p.after.predicted;
  drop.measured = *m.before.measured - *m.after.measured;
  add(e, after, drop, 0, 0, name);
  return out;
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

  explicit Subject(const StepCase& c) : a(load_model(c.preset).value()), scheme(find_scheme(c.scheme).value()) {
    for (const std::string& assignment : c.set) set_field(a, assignment).value();
    resolve(a).value();
    adapt(a, *scheme, profile).value();
    graph = build_graph(a);
    batch =
        make_batch({.source = c.tokens, .length = c.length, .sequences = c.sequences, .vocab = a.vocab, .positions = a.positions}).value();
  }
};

std::optional<Options> read_options(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--curve") {
      o.curve = true;
    } else if (flag == "--all") {
      o.all = true;
    } else if (i + 1 == argc) {
      return {};
    } else if (flag == "--only") {
      o.only = argv[++i];
    } else if (flag == "--optimizer") {
      o.optimizer = argv[++i];
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
               "usage: bench_accuracy_step [--only WORD] [--optimizer NAME] [--seeds N] [--worst N] [--curve] [--all] [--effort SHARE]\n");
    return 2;
  }
  keep_freed_memory();
  std::map<std::string, Errors> all;
  for (const StepCase& c : step_grid()) {
    if (c.name.find(options->only) == std::string::npos) continue;
    const Subject m(c);
    for (const StepOptimizer& o : step_optimizers()) {
      if (!options->optimizer.empty() && o.name != options->optimizer) continue;
      const std::string name = fmt::format("{}, {}", c.name, o.name);
      StepOptions step{.steps = 1, .optimizer = settled(o.options).value(), .rates = {}, .search = options->curve};
      const auto predicted = predict_step(
          m.graph, m.a, m.batch, Assignment(m.graph, m.a, *m.scheme), c.scheme,
          {.optimizer = step.optimizer, .factors = options->curve ? searched_rates() : std::vector<double>{}, .effort = options->effort});
      if (!predicted) {
        fmt::print(stderr, "{}: {}\n", name, predicted.error().message);
        continue;
      }
      MeasureOptions how{.scheme = m.scheme, .step = step, .seed = 1000, .seeds = options->seeds};
      const Signal measured = measure(m.graph, m.a, m.batch, how).value();
      const Result r = compare_steps(m.graph, predicted->step(), measured.steps[0], name);
      fmt::print("\n## {}: loss {:.4f} -> {:.4f} (measured {:.4f} -> {:.4f}), largest relative change {:.3g}\n\n", name,
                 *predicted->step().before.predicted, *predicted->step().after.predicted, *measured.steps[0].before.measured,
                 *measured.steps[0].after.measured, [&] {
                   double top = 0;
                   for (std::size_t i = 0; i < measured.steps[0].wires.size(); ++i) {
                     if (std::holds_alternative<Residual>(m.graph.nodes[i].op))
                       top = std::max(top, measured.steps[0].wires[i].relative.measured.value_or(0));
                   }
                   return top;
                 }());
      print_errors(r.errors, options->worst);
      if (options->all) {
        for (std::size_t i = 0; i < measured.steps[0].wires.size(); ++i) {
          const auto &p = predicted->step().wires[i], &q = measured.steps[0].wires[i];
          const auto ratio = [](const Value& a, const Value& b) {
            return a.predicted && b.measured && *b.measured > 0 ? *a.predicted / *b.measured : NAN;
          };
          fmt::print("  {:28} {:16} change {:.4g} ratio {:.3f} direct {:.3f} carried {:.3f}\n", q.name, q.kind,
                     q.change.measured.value_or(NAN), ratio(p.change, q.change), ratio(p.direct, q.direct), ratio(p.carried, q.carried));
        }
        for (std::size_t k = 0; k < m.graph.params.size(); ++k) {
          const auto &p = predicted->step().parameters[k], &q = measured.steps[0].parameters[k];
          const auto ratio = [](const Value& a, const Value& b) {
            return a.predicted && b.measured && *b.measured != 0 ? *a.predicted / *b.measured : NAN;
          };
          fmt::print("  {:40} norm {:.3f} direct {:.3f} decrease {:.3f} of {:.3g}\n", q.name, ratio(p.update_norm, q.update_norm),
                     ratio(p.direct_change, q.direct_change), ratio(p.decrease, q.decrease), q.decrease.measured.value_or(NAN));
        }
      }
      for (std::size_t k = 0; options->curve && k < predicted->step().rates.size(); ++k) {
        const auto &p = predicted->step().rates[k], &q = measured.steps[0].rates[k];
        fmt::print("  rate {:.3g}: decrease {:.4g} predicted, {:.4g} measured\n", p.rate,
                   *predicted->step().before.predicted - p.loss.predicted.value_or(NAN),
                   *measured.steps[0].before.measured - q.loss.measured.value_or(NAN));
      }
      std::fflush(stdout);
      Errors& to = all.try_emplace(o.name, Errors(count)).first->second;
      for (int q = 0; q < count; ++q) to[q].insert(to[q].end(), r.errors[q].begin(), r.errors[q].end());
    }
  }
  for (const auto& [name, errors] : all) {
    fmt::print("\n# {}\n\n", name);
    print_errors(errors, options->worst);
  }
}
