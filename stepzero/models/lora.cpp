#include "stepzero/models/lora.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/core/read_real.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/graph/role_names.hpp"

namespace stepzero {

double Lora::scale() const {
  const double r = static_cast<double>(rank);
  return alpha / (root ? std::sqrt(r) : r);
}

namespace {

constexpr Index most_rank = 65536;
constexpr const char* example = "for example --lora rank=8,alpha=16,roles=query,value";
constexpr std::string_view all_linear = "all-linear";

Expected<double> number_of(std::string_view key, std::string_view text, double least) {
  double value = 0;
  const auto [end, error] = read_real(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && std::isfinite(value) && value >= least) return value;
  return fail(fmt::format("--lora: {}={} is not a number from {} on", key, show(text), least), example);
}

Expected<void> set_number(double& to, std::string_view key, std::string_view text) {
  const auto value = number_of(key, text, 0);
  if (!value) return std::unexpected(value.error());
  to = *value;
  return {};
}

Expected<void> set_rank(Lora& lora, std::string_view text) {
  const auto value = number_of("rank", text, 1);
  if (!value) return std::unexpected(value.error());
  if (*value != std::floor(*value) || *value > most_rank)
    return fail(fmt::format("--lora: rank={} is not a whole number from 1 to {}", show(text), most_rank), example);
  lora.rank = static_cast<Index>(*value);
  return {};
}

Expected<void> set(Lora& lora, std::string_view key, std::string_view value) {
  if (value.empty()) return fail(fmt::format("--lora: {} has no value", show(key)), example);
  if (key == "rank") return set_rank(lora, value);
  if (key == "alpha") return set_number(lora.alpha, key, value);
  if (key == "a_std") return set_number(lora.down_std.emplace(), key, value);
  if (key == "b_std") return set_number(lora.up_std, key, value);
  if (key == "rslora") {
    if (value != "true" && value != "false") return fail(fmt::format("--lora: rslora={} is neither true nor false", show(value)), example);
    lora.root = value == "true";
    return {};
  }
  if (key == "roles" || key == "modules") return (key == "roles" ? lora.roles : lora.modules).emplace_back(value), Expected<void>();
  return fail(fmt::format("--lora: unknown key \"{}\"", show(key)), "keys are rank, alpha, roles, modules, rslora, a_std, b_std");
}

}  // namespace

// A word without = belongs to the list before it.
Expected<Lora> parse_lora(std::string_view text) {
  Lora lora;
  std::string key;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    const std::size_t equals = word.find('=');
    const bool more = equals == std::string_view::npos;
    if (more && key != "roles" && key != "modules") return fail(fmt::format("--lora: \"{}\" is not key=value", show(word)), example);
    if (!more) key = word.substr(0, equals);
    if (auto done = set(lora, key, more ? word : word.substr(equals + 1)); !done) return std::unexpected(done.error());
  }
  if (lora.roles.empty() && lora.modules.empty()) lora.roles = {"query", "value"};
  return lora;
}

std::string module_of(const Param& p) { return p.name.substr(0, p.name.rfind('.')); }

namespace {

// Puts adapters beside the tensors of a graph.
class Adapters {
 public:
  Adapters(Graph& graph, const Lora& lora) : graph_(graph), lora_(lora), users_(graph.params.size()) {
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      for (const ParamUse& use : graph.nodes[i].params) users_[static_cast<std::size_t>(use.param)].insert(i);
    }
  }

  Expected<void> add() {
    std::set<std::size_t> chosen;
    for (const std::string& role : lora_.roles) {
      if (auto done = choose_role(role, chosen); !done) return done;
    }
    for (const std::string& module : lora_.modules) {
      const auto has_name = [&](std::size_t k) { return names(module, k); };
      if (auto done = choose(fmt::format("module {}", show(module)), has_name, chosen); !done) return done;
    }
    for (Param& p : graph_.params) p.frozen = true;
    for (const std::size_t k : chosen) put_beside(k);
    return {};
  }

 private:
  // A matrix that whole nodes multiply with: neither a table nor the kernel of a convolution nor one of many experts.
  [[nodiscard]] bool carries(std::size_t k) const {
    const Param& p = graph_.params[k];
    if (!p.name.ends_with(".weight") || p.role == Role::token_embedding) return false;
    return !users_[k].empty() && std::ranges::all_of(users_[k], [&](std::size_t i) {
      const Node& node = graph_.nodes[i];
      return std::holds_alternative<Linear>(node.op) && node.params[0].param == static_cast<int>(k);
    });
  }

  [[nodiscard]] bool in_experts(std::size_t k) const {
    return std::ranges::any_of(users_[k], [&](std::size_t i) {
      return std::string_view(kind_of(graph_.nodes[i].op)) == "experts" && graph_.params[k].role != Role::bias;
    });
  }

  // A tensor that holds several projections has the roles of all; of latent attention one holds keys and values head by head.
  [[nodiscard]] bool has_role(std::string_view role, std::size_t k) const {
    const Param& p = graph_.params[k];
    const bool fused = p.role == Role::query_key_value && p.parts.empty() && (role == "key" || role == "value");
    return fused || role == to_string(p.role) ||
           std::ranges::any_of(p.parts, [&](const Part& part) { return role == to_string(part.role); });
  }

  // As peft compares: the whole name, or what stands behind a dot.
  [[nodiscard]] bool names(std::string_view module, std::size_t k) const {
    const std::string own = module_of(graph_.params[k]);
    return own == module || own.ends_with("." + std::string(module));
  }

  Expected<void> choose_role(const std::string& role, std::set<std::size_t>& chosen) {
    if (role != all_linear) return choose(fmt::format("role {}", show(role)), [&](std::size_t k) { return has_role(role, k); }, chosen);
    const auto linear = [&](std::size_t k) { return in_experts(k) || (carries(k) && graph_.params[k].role != Role::head); };
    return choose("all-linear", linear, chosen);
  }

  template <class Wanted>
  Expected<void> choose(const std::string& what, const Wanted& wanted, std::set<std::size_t>& chosen) {
    bool any = false;
    for (std::size_t k = 0; k < graph_.params.size(); ++k) {
      if (!wanted(k)) continue;
      const Param& p = graph_.params[k];
      if (!carries(k) && p.role == Role::bias) continue;  // of a module that is named
      if (!carries(k)) {
        return fail(fmt::format("--lora: {}: \"{}\" cannot carry an adapter: it is {}", what, show(p.name), kind(k)), what_can());
      }
      chosen.insert(k);
      any = true;
    }
    if (any) return {};
    return fail(fmt::format("--lora: {}: there is none in this model", what), what_can());
  }

  [[nodiscard]] std::string kind(std::size_t k) const {
    if (in_experts(k)) return "an expert's matrix";
    switch (graph_.params[k].role) {
      case Role::token_embedding:
      case Role::position_embedding:
        return "a table of embeddings";
      case Role::gain:
      case Role::bias:
      case Role::branch_gain:
        return "no matrix";
      default:
        return graph_.params[k].conv ? "the kernel of a convolution" : "not used as one matrix";
    }
  }

  // "query (q_proj), ..."
  [[nodiscard]] std::string what_can() const {
    std::map<std::string, std::set<std::string>> modules;
    for (std::size_t k = 0; k < graph_.params.size(); ++k) {
      const std::string module = module_of(graph_.params[k]);
      if (carries(k)) modules[to_string(graph_.params[k].role)].insert(module.substr(module.rfind('.') + 1));
    }
    std::vector<std::string> list;
    for (const auto& [role, names] : modules) list.push_back(fmt::format("{} ({})", role, fmt::join(names, ", ")));
    return fmt::format("roles that can, and the modules' names: {}; all-linear is all of them but the head", fmt::join(list, ", "));
  }

  [[nodiscard]] Param adapter_param(const Param& beside, const char* which, Index rows, Index cols, Role role) const {
    Param p{std::string(adapter_prefix) + module_of(beside) + which + ".weight", {rows, cols}, role, beside.layer, cols, rows};
    if (role == Role::lora_down)
      p.law = lora_.down_std ? Distribution::normal(*lora_.down_std) : Distribution::uniform(1 / std::sqrt(static_cast<double>(cols)));
    else
      p.law = lora_.up_std > 0 ? Distribution::normal(lora_.up_std) : Distribution::constant(0);
    return p;
  }

  // One A and one B for the tensor, whatever it is stored like and however many projections it holds.
  void put_beside(std::size_t k) {
    const Param beside = graph_.params[k];
    const Index in = beside.in_out ? beside.rows() : beside.cols(), out = beside.in_out ? beside.cols() : beside.rows();
    const int down = graph_.add_param(adapter_param(beside, ".lora_A", lora_.rank, in, Role::lora_down));
    const int up = graph_.add_param(adapter_param(beside, ".lora_B", out, lora_.rank, Role::lora_up));
    for (const std::size_t i : users_[k]) {
      Node& node = graph_.nodes[i];
      const Linear base = std::get<Linear>(node.op);
      const std::vector<ParamUse> matrices(node.params.begin(), node.params.begin() + base.pieces);
      node.params.push_back(graph_.whole(down));
      for (const ParamUse& use : matrices)
        node.params.push_back({up, beside.in_out ? use.col0 : use.row0, 0, beside.in_out ? use.cols : use.rows, lora_.rank});
      node.op = LoraLinear{.base = base, .rank = lora_.rank, .scale = lora_.scale()};
    }
  }

  Graph& graph_;
  const Lora& lora_;
  std::vector<std::set<std::size_t>> users_;  // nodes that use each parameter
};

}  // namespace

Expected<void> add_adapters(Graph& graph, const Lora& lora) { return Adapters(graph, lora).add(); }

}  // namespace stepzero
