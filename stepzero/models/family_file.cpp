#include "stepzero/models/family_file.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"
#include "stepzero/models/rope.hpp"

namespace stepzero {

namespace {

using A = Architecture;
using lang::Value;

struct Size {
  std::string_view name;
  Value (*value)(const A& a);
};

template <auto member>
Value of(const A& a) {
  using T = std::remove_cvref_t<decltype(a.*member)>;
  if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, double> || std::is_same_v<T, Index>)
    return a.*member;
  else if constexpr (std::is_same_v<T, std::string>)
    return a.*member;
  else
    return std::string(to_string(a.*member));
}

// ["none"] and the like: what rope(...) in the words takes.
Value rope_rule(const A& a) {
  using R = RopeScaling;
  const double stretch = a.rotary > 0 ? rope_table(a, 0).stretch : 1;
  std::vector<Value> rule = {std::string(to_string(a.rope_scaling))};
  const Value original = a.rope_original_positions;
  const auto add = [&](std::initializer_list<Value> more) { rule.insert(rule.end(), more); };
  if (a.rope_scaling == R::linear) add({a.rope_factor});
  if (a.rope_scaling == R::llama3) add({a.rope_factor, original, a.rope_low_freq, a.rope_high_freq});
  if (a.rope_scaling == R::yarn) add({a.rope_factor, original, a.rope_beta_fast, a.rope_beta_slow, a.rope_truncate, stretch});
  if (a.rope_scaling == R::longrope) {
    add({stretch});
    for (const double factor : a.rope_beyond ? a.rope_long : a.rope_short) rule.emplace_back(factor);
  }
  if (a.rope_scaling == R::dynamic) rule[0] = std::string("none");  // it begins beyond the positions
  return lang::make_list(std::move(rule));
}

// What the arch(...) of a family may name.
constexpr std::array known = std::to_array<Size>({
    {"width", of<&A::width>},
    {"layers", of<&A::layers>},
    {"decoder_layers", of<&A::decoder_layers>},
    {"heads", of<&A::heads>},
    {"kv_heads", of<&A::kv_heads>},
    {"head_dim", of<&A::head_dim>},
    {"ffn", of<&A::ffn>},
    {"vocab", of<&A::vocab>},
    {"positions", of<&A::positions>},
    {"position_offset", of<&A::position_offset>},
    {"token_types", of<&A::token_types>},
    {"embedding_width", of<&A::embedding_width>},
    {"padding", of<&A::padding>},
    {"norm_eps", of<&A::norm_eps>},
    {"norm_gain", of<&A::norm_gain>},
    {"norm_placement", of<&A::norm_placement>},
    {"final_norm", of<&A::final_norm>},
    {"qk_norm", of<&A::qk_norm>},
    {"parallel_block", of<&A::parallel_block>},
    {"shared_norm", of<&A::shared_norm>},
    {"activation", of<&A::activation>},
    {"gated", of<&A::gated>},
    {"attention_bias", of<&A::attention_bias>},
    {"mlp_bias", of<&A::mlp_bias>},
    {"causal", of<&A::causal>},
    {"window", of<&A::window>},
    {"layer_types", of<&A::layer_types>},
    {"clip_qkv", of<&A::clip_qkv>},
    {"alibi", of<&A::alibi>},
    {"residual_from_norm", of<&A::residual_from_norm>},
    {"attention_scale", of<&A::attention_scale>},
    {"attention_scale_by_layer", of<&A::attention_scale_by_layer>},
    {"attention_softcap", of<&A::attention_softcap>},
    {"residual_scale", of<&A::residual_scale>},
    {"embedding_scale", of<&A::embedding_scale>},
    {"logit_scale", of<&A::logit_scale>},
    {"logit_softcap", of<&A::logit_softcap>},
    {"tied", of<&A::tied>},
    {"turned", of<&A::rotary>},
    {"rotary_interleaved", of<&A::rotary_interleaved>},
    {"rope_theta", of<&A::rope_theta>},
    {"rope_theta_window", of<&A::rope_theta_window>},
    {"rope_rule", rope_rule},
    {"relative_positions", of<&A::relative_positions>},
    {"relative_distance", of<&A::relative_distance>},
    {"n_experts", of<&A::experts>},
    {"experts_per_token", of<&A::experts_per_token>},
    {"shared_experts", of<&A::shared_experts>},
    {"expert_ffn", of<&A::expert_ffn>},
    {"dense_layers", of<&A::dense_layers>},
    {"router_normalise", of<&A::router_normalise>},
    {"router_scale", of<&A::router_scale>},
    {"router_groups", of<&A::router_groups>},
    {"router_kept_groups", of<&A::router_kept_groups>},
    {"query_rank", of<&A::query_rank>},
    {"key_value_rank", of<&A::key_value_rank>},
    {"key_dim", of<&A::key_dim>},
    {"key_rope_dim", of<&A::key_rope_dim>},
    {"value_dim", of<&A::value_dim>},
    {"image", of<&A::image>},
    {"patch", of<&A::patch>},
    {"colours", of<&A::colours>},
    {"init_std", of<&A::init_std>},
});

// Lines of at most 140 columns, what goes on below the first argument.
std::string arch_call(const std::string& name, const SizeValues& sizes) {
  constexpr std::size_t most = 140;
  std::string out = fmt::format("arch({}", lang::to_literal(Value(name)));
  std::size_t column = out.size();
  for (const auto& [size, value] : sizes) {
    const std::string word = fmt::format("{}={}", size, lang::to_literal(value));
    out += column + word.size() + 3 > most ? ",\n     " : ", ";
    column = column + word.size() + 3 > most ? 5 + word.size() : column + 2 + word.size();
    out += word;
  }
  return out + ")";
}

// Where the brackets of the call that begins at `start` end.
std::size_t end_of_call(std::string_view text, std::size_t start) {
  int open = 0;
  char quote = '\0';
  for (std::size_t i = start; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != '\0') {
      if (c == '\\')
        ++i;
      else if (c == quote)
        quote = '\0';
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '(' || c == '[') {
      ++open;
    } else if ((c == ')' || c == ']') && --open == 0) {
      return i + 1;
    }
  }
  return text.size();
}

}  // namespace

const FamilyFile* find_family_file(std::string_view model_type) {
  const auto files = family_files();
  const auto it = std::ranges::find(files, model_type, &FamilyFile::model_type);
  return it != files.end() && it->text.contains("key(\"") ? &*it : nullptr;
}

std::string with_sizes(std::string_view text, const std::string& name, const SizeValues& sizes) {
  std::size_t start = text.starts_with("arch(") ? 0 : text.find("\narch(");
  if (start == std::string_view::npos) return std::string(text);
  if (start > 0) ++start;
  return std::string(text.substr(0, start)) + arch_call(name, sizes) + std::string(text.substr(end_of_call(text, start)));
}

Expected<std::string> fill_family_file(const Architecture& a) {
  const auto files = family_files();
  const std::string_view type = a.family == "gemma3" ? "gemma3_text" : std::string_view(a.family);
  const auto file = std::ranges::find(files, type, &FamilyFile::model_type);
  if (file == files.end()) {
    return fail(fmt::format("family {} is not an architecture file yet", show(a.family)), "describe --json writes its canonical graph");
  }
  auto declared = load_text(std::string(file->text), std::string(type));
  if (!declared) return std::unexpected(declared.error());
  SizeValues sizes;
  for (const auto& [name, value] : declared->own->sizes) {
    const auto size = std::ranges::find(known, name, &Size::name);
    STEPZERO_CHECK(size != known.end());
    sizes.emplace_back(name, size->value(a));
  }
  return with_sizes(file->text, a.name, sizes);
}

}  // namespace stepzero
