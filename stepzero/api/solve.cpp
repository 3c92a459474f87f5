#include "stepzero/api/solve.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "stepzero/api/guarded.hpp"
#include "stepzero/api/setup.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/graph/role_names.hpp"
#include "stepzero/models/rope.hpp"
#include "stepzero/optim/rates.hpp"
#include "stepzero/pass/measure.hpp"
#include "stepzero/report/diagnosis.hpp"
#include "stepzero/schemes/scheme_file.hpp"
#include "stepzero/solve/solve.hpp"

namespace stepzero {

namespace {

using namespace solve;

std::vector<std::string> free_of(const SolveRequest& r, const std::vector<Weighted>& objectives) {
  if (!r.free.empty()) return r.free;
  std::vector<std::string> out;
  for (const Weighted& w : objectives) {
    for (const char* name : w.objective->free) {
      if (std::ranges::find(out, name) == out.end()) out.emplace_back(name);
    }
  }
  return out;
}

// Sequences of `length` tokens, of the same kind as those asked for.
std::function<Expected<Batch>(const Architecture&, Index)> input_of(const InputOptions& asked) {
  return [asked](const Architecture& a, Index length) -> Expected<Batch> {
    if (length == 0 || a.image > 0) return make_input(a, asked);
    InputOptions few = asked;
    few.length = asked.length > 0 ? std::min(asked.length, length) : length;
    few.sequences = 1;
    if (auto batch = make_input(a, few); batch && batch->length <= length) return batch;
    few.tokens = "zipf";  // a file's sequences cannot be cut
    few.encoder_tokens.clear();
    return make_input(a, few);
  };
}

Expected<Problem> problem_of(const Architecture& a, const Scheme& scheme, const SolveRequest& r) {
  auto objectives = parse_objective(r.objective, r.targets);
  if (!objectives) return std::unexpected(objectives.error());
  if (r.by != "role" && r.by != "layer") return fail(fmt::format("--by {}: neither role nor layer", show(r.by)));
  auto unknowns = Unknowns::make(a, scheme, free_of(r, *objectives), !r.free.empty(), r.by == "layer" ? By::layer : By::role);
  if (!unknowns) return std::unexpected(unknowns.error());
  for (Weighted& w : *objectives) {
    if (r.by == "layer" && w.settings.contains("even")) w.settings["even"] = 1;
  }
  Problem out{.unknowns = std::move(*unknowns),
              .objectives = std::move(*objectives),
              .constraints = {},
              .optimizer = {},
              .rates = {},
              .input = input_of(r.input)};
  for (const std::string& text : r.subject_to) {
    auto c = parse_constraint(text);
    if (!c) return std::unexpected(c.error());
    out.constraints.push_back(std::move(*c));
  }
  const auto optimizer = settled(r.optimizer);
  if (!optimizer) return std::unexpected(optimizer.error());
  out.optimizer = *optimizer;
  out.order = r.order;
  if (!r.rates.empty()) {
    auto rates = read_rates(r.rates, out.unknowns.graph().params);
    if (!rates) return std::unexpected(rates.error());
    out.rates = std::move(*rates);
  }
  return out;
}

// Rows of roles that moved: one where all layers are alike.
std::vector<SolvedScale> scales_of(const Unknowns& unknowns, const Assignment& before, const Assignment& after) {
  const Graph& graph = unknowns.graph();
  std::vector<SolvedScale> out;
  for (const Unknown& u : unknowns.list()) {
    const std::string stack = u.name.starts_with("encoder.") ? "encoder" : u.name.starts_with("decoder.") ? "decoder" : "";
    for (const Unknown::Member& m : u.members) {
      const Param& p = graph.params[m.param];
      const auto block = [&](const Assignment& laws) {
        if (!m.part) return laws.of({static_cast<int>(m.param), 0, 0, p.rows(), p.cols()}).std();
        const Part& part = p.parts[*m.part];
        return laws.of({static_cast<int>(m.param), part.row0, part.col0, part.rows, part.cols}).std();
      };
      SolvedScale s{.role = to_string(m.part ? p.parts[*m.part].role : p.role),
                    .stack = stack,
                    .layer = p.layer,
                    .before = block(before),
                    .after = block(after)};
      if (p.layer < 0) s.layer.reset();
      const auto same = [&](const SolvedScale& o) {
        return o.role == s.role && o.stack == s.stack && o.layer == s.layer && o.before == s.before && o.after == s.after;
      };
      if (std::ranges::none_of(out, same)) out.push_back(std::move(s));
    }
  }
  std::map<std::pair<std::string, std::string>, std::vector<SolvedScale>> groups;
  std::vector<std::pair<std::string, std::string>> order;
  for (SolvedScale& s : out) {
    const auto key = std::pair(s.stack, s.role);
    if (!groups.contains(key)) order.push_back(key);
    groups[key].push_back(std::move(s));
  }
  out.clear();
  for (const auto& key : order) {
    auto& list = groups[key];
    const bool alike = std::ranges::all_of(list, [&](const SolvedScale& s) {
      return std::abs(std::log(s.before / list[0].before)) < 1e-9 && std::abs(std::log(s.after / list[0].after)) < 1e-9;
    });
    if (alike) {
      list.resize(1);
      list[0].layer.reset();
    }
    out.insert(out.end(), list.begin(), list.end());
  }
  return out;
}

// To first order an effect goes with its tensor's rate: rate_i = rate wanted / r_i, over the nodes that use the tensor.
std::vector<std::pair<std::string, double>> rates_of(const Problem& problem, const Solution& solution) {
  const Graph& graph = problem.unknowns.graph();
  const std::vector<TensorPlan> plans = plan_tensors(graph, problem.optimizer, problem.rates);
  std::vector<std::pair<double, double>> logs(graph.params.size());  // sum of ln(wanted / r), count
  for (const Target& t : solution.before) {
    const int i = graph.find_node(t.what);
    if (i < 0 || !t.binds.empty()) continue;
    for (const ParamUse& use : graph.nodes[static_cast<std::size_t>(i)].params) {  // its bias too
      auto& to = logs[static_cast<std::size_t>(use.param)];
      to.first += std::log(t.wanted / t.value);
      to.second += 1;
    }
  }
  std::vector<std::pair<std::string, double>> out;
  for (std::size_t p = 0; p < logs.size(); ++p) {
    if (logs[p].second > 0) out.emplace_back(graph.params[p].name, plans[p].rate.rate * std::exp(logs[p].first / logs[p].second));
  }
  return out;
}

// The same numbers by real passes, of the scheme as its file says it.
Expected<std::vector<Target>> measured(const Problem& problem, const SolveSubject& subject, const Architecture& a, const SolveRequest& r,
                                       const Watch& watch) {
  const Scheme* scheme = keep_scheme(subject.file);
  auto changed = a;
  if (auto done = set_fields(changed, subject.file); !done) return std::unexpected(done.error());
  if (auto done = resolve(changed); !done) return std::unexpected(done.error());
  const auto setup = prepare(std::move(changed), *scheme, r.input);
  if (!setup) return std::unexpected(setup.error());
  Teller tell(watch, "measuring", 0.5, 1);
  MeasureOptions options;
  options.scheme = scheme;
  options.seed = r.seed;
  options.seeds = r.measure;
  options.progress = [&](double share) { tell(share); };
  options.warn = watch.warn;
  if (problem.steps()) {
    options.step = {.steps = 1, .optimizer = problem.optimizer, .search = false};
    options.step.rates = problem.rates;
    for (const auto& [tensor, rate] : subject.rates) options.step.rates.rows.push_back({.tensor = tensor, .rate = rate});
  }
  const auto signal = measure(setup->graph, setup->architecture, setup->batch, options);
  if (!signal) return std::unexpected(signal.error());
  std::vector<std::optional<double>> effects(setup->graph.nodes.size());
  if (problem.steps()) {
    const auto& wires = signal->steps.at(0).wires;
    for (std::size_t i = 0; i < wires.size(); ++i) effects[i] = wires[i].direct.measured;
    // of the nodes that the prediction speaks of
    for (std::size_t i = 0; i < effects.size(); ++i) {
      const auto told = std::ranges::find(subject.solution.after, setup->graph.nodes[i].name, &Target::what);
      if (told == subject.solution.after.end()) effects[i].reset();
    }
  }
  return targets_of(problem, Readout(setup->graph, *signal, &Value::measured, std::move(effects)));
}

// Rates that move leave the weights as they are: one prediction before, one after.
Expected<Solution> solve_rates(Problem& problem, SolveSubject& subject) {
  if (problem.objectives.size() != 1 || !problem.steps() || !problem.constraints.empty())
    return fail("--move-rates goes with the objective update alone, without constraints");
  Solution out;
  out.z.assign(problem.unknowns.size(), 0);
  for (const bool moved : {false, true}) {
    auto at = predict_at(problem, out.z);
    if (!at) return std::unexpected(at.error());
    auto targets = targets_of(problem, Readout(*at->point.graph, at->signal, &Value::predicted, at->effects));
    if (targets.empty()) return fail("the objective speaks of nothing that this model has");
    (moved ? out.after : out.before) = std::move(targets);
    (moved ? out.signal : out.signal_before) = std::move(at->signal);
    if (moved) break;
    subject.rates = rates_of(problem, out);
    for (const auto& [tensor, rate] : subject.rates) problem.rates.rows.push_back({.tensor = tensor, .rate = rate});
  }
  out.cost_before = cost_of(out.before);
  out.cost = cost_of(out.after);
  return out;
}

}  // namespace

Expected<SolveSubject> run_solve(const Architecture& a, const Scheme& scheme, const SolveRequest& r, const Watch& watch) {
  auto problem = problem_of(a, scheme, r);
  if (!problem) return std::unexpected(problem.error());
  Teller tell(watch, "solving", 0, r.measure > 0 ? 0.5 : 1);
  problem->progress = [&](double share) { tell(share); };
  SolveSubject out;
  out.architecture = a;
  out.parameters = problem->unknowns.graph().parameter_count();
  out.scheme = scheme.name;
  out.objective = r.objective;
  out.graph = std::make_shared<const Graph>(problem->unknowns.graph());
  for (const Weighted& w : problem->objectives) out.formulas.emplace_back(w.objective->formula);
  for (const Unknown& u : problem->unknowns.list()) out.unknowns.push_back(u.name);
  auto solution = r.move_rates ? solve_rates(*problem, out) : solve::solve(*problem);
  if (!solution) return std::unexpected(solution.error());
  out.solution = std::move(*solution);
  for (Signal* s : {&out.solution.signal_before, &out.solution.signal}) s->findings = diagnose(*s);
  const Unknowns& unknowns = problem->unknowns;
  auto file = unknowns.file(out.solution.z, "solved");
  if (!file) return std::unexpected(file.error());
  out.file = std::move(*file);
  const auto before = unknowns.at(std::vector<double>(unknowns.size(), 0)), after = unknowns.at(out.solution.z);
  if (!after) return std::unexpected(after.error());
  if (!r.move_rates) out.scales = scales_of(unknowns, before->laws, after->laws);
  for (std::size_t u = 0; u < unknowns.size(); ++u) {
    const Unknown& one = unknowns.list()[u];
    if (!one.field.empty())
      out.multipliers.push_back({one.field, unknowns.multiplier(one, 0), unknowns.multiplier(one, out.solution.z[u])});
  }
  if (r.measure > 0) {
    auto seen = measured(*problem, out, a, r, watch);
    if (!seen) return std::unexpected(seen.error());
    if (seen->size() == out.solution.after.size()) out.measured = std::move(*seen);
    out.seeds = r.measure;
  }
  return out;
}

Expected<double> cost_as_it_is(const Architecture& a, const Scheme& scheme, const SolveRequest& request) {
  SolveRequest any = request;
  any.free = {"value", "attention_out", "ffn_in", "ffn_out", "token_embedding", "head", "query", "projection"};
  std::erase_if(any.free, [&](const std::string& role) { return !Unknowns::make(a, scheme, {role}, true, By::role); });
  const auto problem = problem_of(a, scheme, any);
  if (!problem) return std::unexpected(problem.error());
  const auto at = predict_at(*problem, std::vector<double>(problem->unknowns.size(), 0));
  if (!at) return std::unexpected(at.error());
  const auto targets = targets_of(*problem, Readout(*at->point.graph, at->signal, &Value::predicted, at->effects));
  return cost_of(targets);
}

Expected<SolveResult> Model::solve(const SolveRequest& request, const Watch& watch) const {
  return guarded(watch, [&]() -> Expected<SolveResult> {
    auto done = run_solve(architecture_, *scheme_, request, watch);
    if (!done) return std::unexpected(done.error());
    return SolveResult(std::make_shared<const SolveSubject>(std::move(*done)));
  });
}

std::string SolveResult::json() const { return solve_json(*solved_); }
std::string SolveResult::text() const { return solve_text(*solved_, Look{.width = 100, .color = false, .unicode = true}, false); }
std::string SolveResult::scheme() const { return solve_scheme(*solved_); }
std::string SolveResult::rates() const { return solve_rates(*solved_); }
std::string SolveResult::torch(const std::string& command) const { return solve_torch(*solved_, command); }
double SolveResult::cost_before() const { return solved_->solution.cost_before; }
double SolveResult::cost() const { return solved_->solution.cost; }

}  // namespace stepzero
