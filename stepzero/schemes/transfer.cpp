#include "stepzero/schemes/transfer.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/core/text.hpp"

namespace stepzero {

namespace {

double ratio(Index target, Index base) { return static_cast<double>(target) / static_cast<double>(base); }

// The name with its layer's number taken out: what tensors of one kind share.
std::string without_layer(const Param& p) {
  const std::string number = fmt::format(".{}.", p.layer);
  const std::size_t at = p.layer < 0 ? std::string::npos : p.name.find(number);
  return at == std::string::npos ? p.name : p.name.substr(0, at) + ".*." + p.name.substr(at + number.size());
}

// The tensors of the base by name, for every layer of the target the layer at the same share of the depth.
class Counterparts {
 public:
  Counterparts(const Graph& base, const Graph& target) : base_(base) {
    for (std::size_t i = 0; i < base.params.size(); ++i) {
      const Param& p = base.params[i];
      by_kind_[without_layer(p)].push_back(i);
    }
    for (const Param& p : target.params) ++count_[without_layer(p)];
  }

  Expected<std::size_t> of(const Param& p) {
    const std::string kind = without_layer(p);
    const auto it = by_kind_.find(kind);
    if (it == by_kind_.end()) {
      return fail(fmt::format("{} of the target has no counterpart in the base", show(p.name)),
                  "base and target are one architecture at two sizes: the same family and the same settings but for sizes");
    }
    const auto& list = it->second;  // in the order of the layers
    const std::size_t count = count_[kind], at = seen_[kind]++;
    return count == 1 ? list[0] : list[(at * (list.size() - 1) + (count - 1) / 2) / (count - 1)];
  }

 private:
  const Graph& base_;
  std::map<std::string, std::vector<std::size_t>> by_kind_;
  std::map<std::string, std::size_t> count_, seen_;
};

Distribution times(Distribution d, double factor) {
  d.scale *= factor;
  d.diagonal *= factor;
  if (d.kind != Distribution::Kind::constant) d.mean *= factor;
  return d;
}

bool is_query(Role r) { return r == Role::query; }

class Carrier {
 public:
  Carrier(const TransferSide& base, const TransferSide& target, const Scheme& scheme, const TransferOptions& options)
      : base_(base), target_(target), scheme_(scheme), options_(options) {
    out_.parametrization = options.parametrization;
    out_.by_scheme = target.architecture->changes;
    const Architecture &b = *base.architecture, &t = *target.architecture;
    out_.width = t.stages.empty() || b.stages.empty() ? ratio(t.width, b.width) : ratio(t.stages[0], b.stages[0]);
    out_.depth = ratio(t.layers + t.decoder_layers, b.layers + b.decoder_layers);
    out_.head_dim = b.head_dim > 0 ? ratio(t.head_dim, b.head_dim) : 1;
  }

  Expected<Transfer> run() {
    if (auto done = check(); !done) return std::unexpected(done.error());
    scales();
    Counterparts counterparts(*base_.graph, *target_.graph);
    const bool anew = options_.parametrization == Parametrization::standard || options_.parametrization == Parametrization::aligned;
    // the base's word on each law; without a rule for the depth, at the target's depth
    Architecture said = anew ? *target_.architecture : *base_.architecture;
    if (depth_exponent(options_.parametrization) == 0) said.layers = target_.architecture->layers;
    for (std::size_t i = 0; i < target_.graph->params.size(); ++i) {
      const Param& p = target_.graph->params[i];
      const auto from = counterparts.of(p);
      if (!from) return std::unexpected(from.error());
      Param asked = anew ? p : base_.graph->params[*from];
      if (depth_exponent(options_.parametrization) == 0) asked.layer = p.layer;
      if (auto done = check_rule(options_.parametrization, target_.updates[i].rule); !done) return std::unexpected(done.error());
      carry(i, *from, said, asked);
    }
    notes();
    return std::move(out_);
  }

 private:
  [[nodiscard]] Expected<void> check() const {
    const Architecture &b = *base_.architecture, &t = *target_.architecture;
    if (scheme_.name == "mup" || scheme_.name == "completep" ||
        (scheme_.name == "u-mup") != (options_.parametrization == Parametrization::u_mup)) {
      if (scheme_.name == "u-mup" || options_.parametrization == Parametrization::u_mup)
        return fail("u-mup is a scheme and a parametrization, one does not go without the other", "--scheme u-mup --parametrization u-mup");
      return fail(fmt::format("scheme {} carries numbers from a base model by itself", scheme_.name),
                  "the scheme of transfer is that of the base: hf, gpt2, he, ...");
    }
    if (b.family != t.family || b.tied != t.tied)
      return fail(fmt::format("{} and {} are not one architecture at two sizes", show(b.name), show(t.name)),
                  b.family != t.family ? "their families differ" : "the head of one is tied to the embeddings");
    return {};
  }

  void change(const std::string& field, double before, double after) {
    if (after != before) out_.scales.push_back({field, fmt::format("{}", before), fmt::format("{}", after)});
  }

  void scales() {
    const Architecture &b = *base_.architecture, &t = *target_.architecture;
    if (options_.parametrization == Parametrization::standard || options_.parametrization == Parametrization::aligned ||
        options_.parametrization == Parametrization::u_mup)
      return;
    const Multipliers m = multipliers_of(options_.parametrization, out_.head_dim, out_.width, out_.depth);
    if (t.attention_scale != b.attention_scale * m.scores)
      out_.scales.push_back({"attention_scale", fmt::format("{}", b.attention_scale), fmt::format("{}", b.attention_scale * m.scores)});
    change("logit_scale", b.logit_scale, b.logit_scale * m.logits);
    if (t.residual_scales.empty()) return change("residual_scale", b.residual_scale, b.residual_scale * m.branches);
    std::vector<double> each;
    for (const double x : t.residual_scales) each.push_back(x * m.branches);
    if (m.branches != 1)
      out_.scales.push_back(
          {"residual_scales", fmt::format("{}", fmt::join(b.residual_scales, ",")), fmt::format("{}", fmt::join(each, ","))});
  }

  void carry(std::size_t i, std::size_t from, const Architecture& said, const Param& asked) {
    const Param &p = target_.graph->params[i], &b = base_.graph->params[from];
    CarriedTensor c{
        .param = i, .base = from, .kind = kind_of_tensor(p), .ratios = {}, .blocks = {}, .before = base_.updates[from], .after = {}};
    c.ratios = {.in = ratio(p.fan_in, b.fan_in),
                .out = ratio(p.fan_out, b.fan_out),
                .width = out_.width,
                .depth = out_.depth,
                .in_block = p.layer >= 0,
                .update_size = target_.updates[i].size / base_.updates[from].size};
    if (c.kind == TensorKind::input || c.kind == TensorKind::vector) c.ratios.in = 1;  // one row at a time
    const Factors f = factors_of(options_.parametrization, target_.updates[i].rule, c.kind, c.ratios);
    c.after = {target_.updates[i].rule, c.before.rate * f.rate, c.before.decay * f.decay, c.before.eps * f.eps, target_.updates[i].size};
    lay_out(c, p, asked, said, f.std);
    out_.tensors.push_back(std::move(c));
  }

  // The laws of the tensor, or of its parts.
  void lay_out(CarriedTensor& c, const Param& p, const Param& asked, const Architecture& said, double factor) const {
    const Graph one{.params = {asked}, .nodes = {}};
    const Assignment laws(one, said, scheme_);
    const auto zero = [&](Role role) {
      return (options_.zero_output && c.kind == TensorKind::output) || (options_.zero_query && is_query(role));
    };
    const bool query_within = options_.zero_query && std::ranges::any_of(p.parts, [](const Part& x) { return is_query(x.role); });
    const bool parted = !p.parts.empty() && (query_within || laws.blocks(0).size() > 1);
    if (!parted) {
      const Distribution law = laws.blocks(0)[0].distribution;
      c.blocks.push_back({{}, law, zero(p.role) ? Distribution::constant(0) : times(law, factor)});
      return;
    }
    for (const Part& part : p.parts) {
      const auto& blocks = laws.blocks(0);
      const auto it = std::ranges::find(blocks, part.role, &Assignment::Block::role);
      const Distribution law = it == blocks.end() ? blocks[0].distribution : it->distribution;
      c.blocks.push_back({part.role, law, zero(part.role) ? Distribution::constant(0) : times(law, factor)});
    }
  }

  void notes() {
    const Architecture& t = *target_.architecture;
    out_.notes.emplace_back("these rules keep the effects of the first updates; later on weight decay decides how large updates are");
    const double alpha = depth_exponent(options_.parametrization);
    if (out_.depth != 1 && alpha == 0 && options_.parametrization != Parametrization::standard)
      out_.notes.push_back(fmt::format("{} says nothing of the depth: rates may have to fall with it (depth-mup, completep do)",
                                       to_string(options_.parametrization)));
    if (t.tied && options_.zero_output) out_.notes.emplace_back("the head is tied to the embeddings and cannot begin at 0");
  }

  const TransferSide& base_;
  const TransferSide& target_;
  const Scheme& scheme_;
  const TransferOptions& options_;
  Transfer out_;
};

}  // namespace

std::vector<std::string> Transfer::set() const {
  std::vector<std::string> out = by_scheme;
  for (const ChangedScale& s : scales) out.push_back(fmt::format("{}={}", s.field, s.target));
  return out;
}

Expected<Transfer> transfer(const TransferSide& base, const TransferSide& target, const Scheme& scheme, const TransferOptions& options) {
  return Carrier(base, target, scheme, options).run();
}

}  // namespace stepzero
