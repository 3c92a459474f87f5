#include "stepzero/cli/optimizer_flags.hpp"

#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/core/text.hpp"

namespace stepzero::cli {

namespace {

// "0.9,0.95"
Expected<void> read_betas(const std::string& text, OptimizerOptions& options) {
  if (text.empty()) return {};
  double first = 0, second = 0;
  const char* const end = text.data() + text.size();
  const auto one = std::from_chars(text.data(), end, first);
  if (one.ec == std::errc() && one.ptr != end && *one.ptr == ',') {
    const auto two = std::from_chars(one.ptr + 1, end, second);
    if (two.ec == std::errc() && two.ptr == end) {
      options.beta1 = first, options.beta2 = second;
      return {};
    }
  }
  return fail(fmt::format("--betas \"{}\" are not two numbers", show(text)), "for example --betas 0.9,0.95");
}

}  // namespace

void OptimizerFlags::declare(CLI::App& app) {
  app.add_option("--optimizer", options.name, fmt::format("{}", fmt::join(optimizer_names(), ", ")))->capture_default_str();
  app.add_option("--rate", options.rate, "learning rate [adamw 1e-3, sgd 0.1, lion 1e-4, muon 0.02 (kimi 1e-3)]");
  app.add_option("--rate-adamw", options.rate_adamw, "muon: of embeddings, heads and vectors, which AdamW updates [1e-3; kimi: --rate]");
  app.add_option("--rates", rates, "a table of single tensors' rate, decay and eps (JSON, stepzero.rates/1)");
  app.add_option("--betas", betas, "adamw [0.9,0.999], lion [0.9,0.99]");
  app.add_option("--eps", options.eps, "adamw")->capture_default_str();
  app.add_option("--decay", options.decay, "weight decay, apart from the gradient: an update takes rate * decay of a weight")
      ->capture_default_str();
  app.add_flag("--decay-matrices", options.decay_matrices, "of matrices alone, not of gains and biases");
  app.add_option("--clip", options.clip, "the most the norm of the whole gradient may be; 0: any")->capture_default_str();
  app.add_option("--momentum", options.momentum, "sgd [0], muon [0.95]");
  app.add_flag("--nesterov", options.nesterov, "sgd, muon: look ahead along the momentum");
  app.add_option("--newton-schulz", options.newton_schulz, "muon: so many Newton-Schulz steps, 5 as a rule [0: the exact polar factor]")
      ->check(CLI::Range(0, 100));
  app.add_option("--muon-scale", muon_scale,
                 "size of muon's update of a matrix: max1 sqrt(max(1, out/in)), kimi 0.2 sqrt(max(in, out)), spectral sqrt(out/in)")
      ->check(CLI::IsMember({"max1", "kimi", "spectral"}))
      ->capture_default_str();
}

Expected<OptimizerOptions> OptimizerFlags::given() const {
  OptimizerOptions all = options;
  if (auto done = read_betas(betas, all); !done) return std::unexpected(done.error());
  all.muon_scale = muon_scale == "kimi" ? MuonScale::kimi : muon_scale == "spectral" ? MuonScale::spectral : MuonScale::max1;
  return all;
}

Expected<OptimizerOptions> OptimizerFlags::settled() const {
  const auto all = given();
  return all ? stepzero::settled(*all) : all;
}

Expected<RateTable> OptimizerFlags::table(const Graph& graph) const {
  return rates.empty() ? Expected<RateTable>(RateTable()) : read_rates(rates, graph.params);
}

}  // namespace stepzero::cli
