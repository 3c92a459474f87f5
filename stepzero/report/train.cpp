#include "stepzero/report/train.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/core/running.hpp"
#include "stepzero/report/export.hpp"
#include "stepzero/report/json_parts.hpp"
#include "stepzero/report/plot.hpp"

namespace stepzero {

namespace {

using Ink = Look::Ink;

const char* name_of(Shape shape) { return shape == Shape::cosine ? "cosine" : shape == Shape::linear ? "linear" : "constant"; }
const char* name_of(MuonScale scale) { return scale == MuonScale::kimi ? "kimi" : scale == MuonScale::spectral ? "spectral" : "max1"; }

std::string header(const TrainSubject& s, std::size_t runs, const Look& look) {
  const std::string sizes = fmt::format("{} parameters, {} layers, width {}, vocabulary {}", s.parameters, s.architecture.layers,
                                        s.architecture.width, s.architecture.vocab);
  const std::string parts = s.options.accumulate > 1 ? fmt::format("{} x ", s.options.accumulate) : "";
  return look.paint(Ink::bold, look.name(s.architecture.name)) + "\n" + wrap(sizes, look.width, 2) + wrap(how_trained(s), look.width, 2) +
         wrap(fmt::format("{}{} x {} tokens an update, from {}{}", parts, s.batch, s.seq_len, look.text(s.data),
                          runs > 1 ? fmt::format("; {} runs", runs) : ""),
              look.width, 2) +
         "\n";
}

// A row a run.
std::string table(const std::vector<RunRecord>& runs, const Look& look) {
  std::size_t scheme = 6;
  for (const RunRecord& r : runs) scheme = std::max(scheme, columns(look.name(r.scheme)));
  std::string out = "  " + left("scheme", scheme) + "  seed  updates      loss          held out  tokens/s\n";
  for (const RunRecord& r : runs) {
    const std::string loss =
        r.steps.empty() ? "" : fmt::format("{} {} {}", number(r.steps.front().loss), look.arrow(), number(last_loss(r.steps)));
    const std::string held = r.validation.empty() ? "" : number(r.validation.back().loss);
    std::string line = "  " + left(look.name(r.scheme), scheme) + right(fmt::format("{}", r.seed), 6) +
                       right(fmt::format("{}", std::max(0, r.updates())), 9) + "  " + left(loss, 18) + right(held, 8) +
                       right(fmt::format("{:.0f}", r.tokens_per_second), 10);
    if (r.outcome == Outcome::fine) {
      out += line + "\n";
      continue;
    }
    out += line + "\n" +
           look.paint(Ink::bad, wrap(r.where.empty() ? fmt::format("{}", to_string(r.outcome))
                                                     : fmt::format("{} at update {}: a number of {} is not finite", to_string(r.outcome),
                                                                   r.steps.size(), look.name(r.where)),
                                     look.width, 4));
  }
  return out;
}

}  // namespace

std::string how_trained(const TrainSubject& s) {
  const OptimizerOptions& o = s.options.optimizer;
  std::string out = fmt::format("{}, rate {}", o.name, *o.rate);
  if (o.decay > 0) out += fmt::format(", decay {}{}", o.decay, o.decay_matrices ? " of matrices" : "");
  if (o.clip > 0) out += fmt::format(", clip {}", o.clip);
  if (s.options.schedule.warmup > 0) out += fmt::format(", warm-up {}", s.options.schedule.warmup);
  if (s.options.schedule.shape != Shape::constant)
    out += fmt::format(", {} to {}", name_of(s.options.schedule.shape), s.options.schedule.end * *o.rate);
  if (!s.options.rates.rows.empty()) out += ", rates of single tensors";
  return out;
}

std::vector<LossBand> loss_bands(const std::vector<RunRecord>& runs) {
  std::vector<LossBand> bands;
  for (const RunRecord& first : runs) {
    if (!bands.empty() && bands.back().scheme == first.scheme) continue;
    LossBand band{.scheme = first.scheme, .mean = {}, .deviation = {}, .validation = {}};
    std::vector<Running> losses, held;
    for (const RunRecord& r : runs) {
      if (r.scheme != first.scheme) continue;
      losses.resize(std::max(losses.size(), r.steps.size()));
      held.resize(std::max(held.size(), r.validation.size()));
      for (std::size_t k = 0; k < r.steps.size(); ++k) losses[k].add(r.steps[k].loss);
      for (std::size_t k = 0; k < r.validation.size(); ++k) held[k].add(r.validation[k].loss);
      if (r.validation.size() > band.validation.size()) band.validation = r.validation;
    }
    for (const Running& l : losses) {
      band.mean.push_back(l.mean);
      band.deviation.push_back(std::sqrt(l.variance()));
    }
    for (std::size_t k = 0; k < held.size(); ++k) band.validation[k].loss = held[k].mean;
    bands.push_back(std::move(band));
  }
  return bands;
}

nlohmann::ordered_json json(const OptimizerOptions& o) {
  nlohmann::ordered_json out = {
      {"name", o.name}, {"rate", *o.rate}, {"decay", o.decay}, {"decay_matrices", o.decay_matrices}, {"clip", o.clip}};
  if (o.name == "adamw" || o.name == "lion" || o.name == "muon") out["betas"] = {*o.beta1, *o.beta2};
  if (o.name == "adamw" || o.name == "muon") out["eps"] = o.eps;
  if (o.name == "sgd" || o.name == "muon") {
    out["momentum"] = *o.momentum;
    out["nesterov"] = o.nesterov;
  }
  if (o.name == "muon") {
    out["rate_adamw"] = *o.rate_adamw;
    out["newton_schulz"] = o.newton_schulz;
    out["scale"] = name_of(o.muon_scale);
  }
  return out;
}

std::string train_json(const TrainSubject& s, const std::vector<RunRecord>& runs) {
  Json out = {{"schema", "stepzero.train/1"}, {"model", json(s.architecture, s.parameters)}, {"scheme", s.scheme}};
  out["optimizer"] = json(s.options.optimizer);
  out["optimizer"]["schedule"] = {{"shape", name_of(s.options.schedule.shape)},
                                  {"warmup", s.options.schedule.warmup},
                                  {"steps", s.options.schedule.steps},
                                  {"end", s.options.schedule.end}};
  out["optimizer"]["accumulate"] = s.options.accumulate;
  out["optimizer"]["table"] = s.options.rates.rows.size();
  out["data"] = {{"source", s.data}, {"tokens", s.data_tokens}, {"batch", s.batch}, {"seq_len", s.seq_len}, {"validation", s.validation}};
  out["runs"] = Json::array();
  for (const RunRecord& r : runs) out["runs"].push_back(to_json(r));
  return dump(out) + "\n";
}

std::string train_csv(const std::vector<RunRecord>& runs) {
  const auto cell = [](double x) { return std::isfinite(x) ? fmt::format("{}", x) : ""; };
  std::string out = "scheme,seed,step,loss,gradient_norm,rate,validation_loss\n";
  for (const RunRecord& r : runs) {
    for (std::size_t k = 0; k < r.steps.size(); ++k) {
      const auto held = std::ranges::find(r.validation, static_cast<int>(k), &HeldOut::step);
      out += fmt::format("{},{},{},{},{},{},{}\n", csv_cell(r.scheme), r.seed, k, cell(r.steps[k].loss), cell(r.steps[k].gradient_norm),
                         cell(r.steps[k].rate), held == r.validation.end() ? "" : cell(held->loss));
    }
  }
  return out;
}

std::string train_text(const TrainSubject& s, const std::vector<RunRecord>& runs, const Look& look) {
  Plot plot{.title = "loss", .x_label = "update", .y_label = "nats"};
  const std::vector<LossBand> bands = loss_bands(runs);
  for (const LossBand& band : bands) {
    Curve curve{.name = bands.size() > 1 ? band.scheme : "training", .x = {}, .y = {}};
    for (std::size_t k = 0; k < band.mean.size(); ++k) {
      if (!std::isfinite(band.mean[k])) continue;
      curve.x.push_back(static_cast<double>(k));
      curve.y.push_back(band.mean[k]);
    }
    Curve held{.name = bands.size() > 1 ? band.scheme + ", held out" : "held out", .x = {}, .y = {}, .line = false};
    for (const HeldOut& v : band.validation) {
      held.x.push_back(v.step);
      held.y.push_back(v.loss);
    }
    if (curve.x.size() > 1) plot.curves.push_back(std::move(curve));
    if (!held.x.empty()) plot.curves.push_back(std::move(held));
  }
  std::string out = header(s, runs.size(), look) + table(runs, look);
  const int wide = static_cast<int>(std::clamp<std::size_t>(look.width, 40, 100)) - 16;
  if (!plot.curves.empty()) out += "\n" + plot_text(plot, wide);
  return out;
}

}  // namespace stepzero
