#include "stepzero/api/transfer.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/api/guarded.hpp"
#include "stepzero/api/setup.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/pass/measure.hpp"
#include "stepzero/schemes/scheme_file.hpp"

namespace stepzero {

namespace {

// Optimizers that stepzero does not run, whose rates it knows.
constexpr auto others = std::to_array<std::pair<std::string_view, UpdateRule>>(
    {{"sophia", UpdateRule::sophia}, {"shampoo", UpdateRule::shampoo}, {"soap", UpdateRule::soap}, {"sso", UpdateRule::sso}});

bool is_other(const std::string& optimizer) {
  return std::ranges::any_of(others, [&](const auto& x) { return x.first == optimizer; });
}

Expected<OptimizerOptions> options_of(const TransferRequest& request) {
  OptimizerOptions o = request.optimizer;
  if (is_other(o.name)) o.name = "adamw";
  auto done = settled(o);
  if (!done && std::ranges::none_of(optimizer_names(), [&](const std::string& name) { return name == o.name; }))
    done.error().hint = fmt::format("{}, and without --check sophia, shampoo, soap, sso", fmt::join(optimizer_names(), ", "));
  return done;
}

std::vector<BaseUpdate> updates_of(const Graph& graph, const std::string& optimizer, const OptimizerOptions& o, const RateTable& rates) {
  std::vector<BaseUpdate> updates = stepzero::updates_of(graph, o, rates);
  const auto other = std::ranges::find(others, optimizer, &std::pair<std::string_view, UpdateRule>::first);
  for (std::size_t i = 0; i < updates.size() && other != others.end(); ++i) {
    if (kind_of_tensor(graph.params[i]) != TensorKind::vector || other->second == UpdateRule::sophia) updates[i].rule = other->second;
  }
  return updates;
}

struct Side {
  Architecture architecture;
  Graph graph;
};

Expected<Side> side_of(const ModelRequest& request, const Scheme& scheme) {
  auto a = describe_model(request.model, request.set, scheme, request.like);
  if (!a) return std::unexpected(a.error());
  auto graph = graph_of(*a, {.lora = request.lora});
  if (!graph) return std::unexpected(graph.error());
  return Side{std::move(*a), std::move(*graph)};
}

// The first step of one side: what each tensor's update does to its nodes' outputs.
Expected<std::vector<double>> effects_of(const Graph& graph, const Architecture& a, const InputOptions& input, MeasureOptions options) {
  const auto batch = make_input(a, input);
  if (!batch) return std::unexpected(batch.error());
  const auto signal = measure(graph, a, *batch, options);
  if (!signal) return std::unexpected(signal.error());
  std::vector<double> out;
  for (const StepSignal::Parameter& p : signal->steps.at(0).parameters) out.push_back(p.direct_change.measured.value_or(0));
  return out;
}

}  // namespace

std::vector<BaseUpdate> updates_of(const Graph& graph, const OptimizerOptions& o, const RateTable& rates) {
  std::vector<BaseUpdate> updates;
  for (const TensorPlan& plan : plan_tensors(graph, o, rates)) {
    BaseUpdate& u = updates.emplace_back(BaseUpdate{.rate = plan.rate.rate, .decay = plan.rate.decay, .eps = plan.rate.eps});
    u.rule = std::holds_alternative<Sgd>(plan.rule)    ? UpdateRule::sgd
             : std::holds_alternative<Lion>(plan.rule) ? UpdateRule::lion
             : std::holds_alternative<Muon>(plan.rule) ? UpdateRule::muon
                                                       : UpdateRule::adam;
    if (const auto* muon = std::get_if<Muon>(&plan.rule)) u.size = muon->scale;
  }
  return updates;
}

RateTable rates_of(const Transfer& transfer, const Graph& target) {
  RateTable table;
  for (const CarriedTensor& c : transfer.tensors)
    table.rows.push_back({.tensor = target.params[c.param].name, .rate = c.after.rate, .decay = c.after.decay, .eps = c.after.eps});
  return table;
}

Expected<TransferSubject> run_transfer(const ModelRequest& base_model, const ModelRequest& target_model, const TransferRequest& request) {
  const auto scheme = find_scheme(base_model.scheme);
  if (!scheme) return std::unexpected(scheme.error());
  const auto parametrization = parse_parametrization(request.parametrization);
  if (!parametrization) return std::unexpected(parametrization.error());
  const auto options = options_of(request);
  if (!options) return std::unexpected(options.error());
  auto base = side_of(base_model, **scheme), target = side_of(target_model, **scheme);
  if (!base) return std::unexpected(base.error());
  if (!target) return std::unexpected(target.error());
  const auto rates = request.rates.empty() ? Expected<RateTable>(RateTable()) : read_rates(request.rates, base->graph.params);
  if (!rates) return std::unexpected(rates.error());
  const std::string& optimizer = request.optimizer.name;
  const TransferSide from{&base->architecture, &base->graph, updates_of(base->graph, optimizer, *options, *rates)};
  const TransferSide to{&target->architecture, &target->graph, updates_of(target->graph, optimizer, *options, {})};
  auto carried = transfer(from, to, **scheme,
                          {.parametrization = *parametrization, .zero_output = request.zero_output, .zero_query = request.zero_query});
  if (!carried) return std::unexpected(carried.error());
  return TransferSubject{.base = std::move(base->architecture),
                         .target = std::move(target->architecture),
                         .base_graph = std::move(base->graph),
                         .target_graph = std::move(target->graph),
                         .scheme = *scheme,
                         .optimizer = optimizer,
                         .options = *options,
                         .transfer = std::move(*carried),
                         .effects = {}};
}

Expected<TransferResult> Model::transfer(const TransferRequest& request, const Watch& watch) const {
  return guarded(watch, [&]() -> Expected<TransferResult> {
    ModelRequest base = request_, target = request_;
    if (!request.target.empty()) target.model = request.target;
    base.set.insert(base.set.end(), request.base_set.begin(), request.base_set.end());
    target.set.insert(target.set.end(), request.target_set.begin(), request.target_set.end());
    auto done = run_transfer(base, target, request);
    if (!done) return std::unexpected(done.error());
    if (request.check) {
      if (auto looked = look_at_effects(*done, request.input, request.seed, request.seeds, watch); !looked)
        return std::unexpected(looked.error());
    }
    return TransferResult(std::make_shared<const TransferSubject>(std::move(*done)));
  });
}

std::string TransferResult::json() const { return transfer_json(*subject_); }
std::string TransferResult::text() const { return transfer_text(*subject_, kPlainLook, false); }
std::string TransferResult::torch(const std::string& command) const { return transfer_torch(*subject_, command); }
std::string TransferResult::rates() const { return transfer_table(*subject_); }

Expected<CarriedModel> target_of(const TransferSubject& s) {
  SchemeFile file{.path = s.scheme->name == "hf" ? "transfer" : fmt::format("transfer of {}", s.scheme->name),
                  .summary = {},
                  .set = s.transfer.set(),
                  .otherwise = s.scheme};
  for (const CarriedTensor& c : s.transfer.tensors) {
    for (const CarriedTensor::Block& b : c.blocks)
      file.laws.push_back({.tensor = s.target_graph.params[c.param].name, .part = b.part, .law = b.law});
  }
  CarriedModel out{s.target, keep_scheme(std::move(file)), rates_of(s.transfer, s.target_graph)};
  if (auto done = adapt(out.architecture, *out.scheme); !done) return std::unexpected(done.error());
  return out;
}

Expected<void> look_at_effects(TransferSubject& s, const InputOptions& input, std::uint64_t seed, int seeds, const Watch& watch) {
  if (is_other(s.optimizer))
    return fail(fmt::format("--check takes a step, and {} is not among the optimizers that are run here", s.optimizer),
                fmt::format("they are {}", fmt::join(optimizer_names(), ", ")));
  if (seeds < 1) return fail(fmt::format("{} seeds: at least one is needed", seeds));
  MeasureOptions options{.scheme = s.scheme, .step = {.steps = 1, .optimizer = s.options, .search = false}, .seed = seed, .seeds = seeds};
  RateTable before;
  for (const CarriedTensor& c : s.transfer.tensors)
    before.rows.push_back(
        {.tensor = s.base_graph.params[c.base].name, .rate = c.before.rate, .decay = c.before.decay, .eps = c.before.eps});
  options.step.rates = before;
  const auto to = target_of(s);
  if (!to) return std::unexpected(to.error());
  const Architecture& a = to->architecture;
  const auto graph = graph_of(a, {});
  if (!graph) return std::unexpected(graph.error());
  const double whole = static_cast<double>(s.base_graph.parameter_count()) + static_cast<double>(graph->parameter_count());
  const double half = static_cast<double>(s.base_graph.parameter_count()) / whole;
  Teller of_base(watch, "the base", 0, half), of_target(watch, "the target", half, 1);
  options.progress = [&](double share) { of_base(share); };
  const auto base = effects_of(s.base_graph, s.base, input, options);
  if (!base) return std::unexpected(base.error());
  options.scheme = to->scheme;
  options.step.rates = to->rates;
  options.progress = [&](double share) { of_target(share); };
  const auto target = effects_of(*graph, a, input, options);
  if (!target) return std::unexpected(target.error());
  const double alpha = depth_exponent(s.transfer.parametrization);
  for (const CarriedTensor& c : s.transfer.tensors) {
    const Param& p = s.target_graph.params[c.param];
    // a head's effect is that on the logits before they are divided; a table that is a head too has most of its effect there
    const bool head = c.kind == TensorKind::output || (s.target.tied && p.role == Role::token_embedding);
    const double wanted = head ? s.base.logit_scale / a.logit_scale : alpha > 0 && p.layer >= 0 ? std::pow(s.transfer.depth, alpha - 1) : 1;
    s.effects.push_back({p.name, s.base_graph.params[c.base].name, p.role, p.layer, (*base)[c.base], (*target)[c.param], wanted});
  }
  return {};
}

}  // namespace stepzero
