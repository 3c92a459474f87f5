#include "stepzero/models/config_reader.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/core/text.hpp"

namespace stepzero {

namespace {

// Keys that say nothing about step zero: who wrote the file, special tokens, how it is run, trained or generated from.
bool is_beside(std::string_view key) {
  constexpr auto ends =
      std::to_array<std::string_view>({"_token_id", "_dropout", "_pdrop", "_dropout_prob", "_coef", "_loss", "_dtype", "_version", "_cache",
                                       "_rate", "layerdrop", "_name_or_path", "_implementation", "_index", "_id"});
  constexpr auto begins =
      std::to_array<std::string_view>({"summary_", "task_", "classifier_", "output_", "return_", "mask_", "stepzero", "_", "is_", "id2",
                                       "label2", "problem_", "finetuning", "num_beam", "use_return_dict"});
  constexpr auto whole = std::to_array<std::string_view>({"architectures",
                                                          "model_type",
                                                          "torch_dtype",
                                                          "dtype",
                                                          "attn_implementation",
                                                          "bos_token",
                                                          "eos_token",
                                                          "pad_token",
                                                          "torchscript",
                                                          "use_bfloat16",
                                                          "tf_legacy_loss",
                                                          "pruned_heads",
                                                          "tie_encoder_decoder",
                                                          "chunk_size_feed_forward",
                                                          "cross_attention_hidden_size",
                                                          "tokenizer_class",
                                                          "prefix",
                                                          "dropout",
                                                          "pretraining_tp",
                                                          "gradient_checkpointing",
                                                          "use_cache",
                                                          "do_sample",
                                                          "max_length",
                                                          "min_length",
                                                          "temperature",
                                                          "top_k",
                                                          "top_p",
                                                          "num_return_sequences",
                                                          "repetition_penalty",
                                                          "length_penalty",
                                                          "n_ctx",
                                                          "router_jitter_noise",
                                                          "aux_loss_alpha",
                                                          "seq_aux",
                                                          "ep_size",
                                                          "initializer_range",
                                                          "unk_token_id",
                                                          "use_flash_attention",
                                                          "language",
                                                          "license",
                                                          "num_labels",
                                                          "image_token_index",
                                                          "reorder_and_upcast_attn",
                                                          "resid_pdrop",
                                                          "embd_pdrop",
                                                          "attn_pdrop",
                                                          "slow_but_exact",
                                                          "skip_bias_add",
                                                          "skip_bias_add_qkv",
                                                          "bias_dropout_fusion",
                                                          "masked_softmax_fusion",
                                                          "unk_token",
                                                          "n_positions",
                                                          "offset_alibi",
                                                          "seq_length",
                                                          "num_nextn_predict_layers",
                                                          "encoder_stride",
                                                          "pooler_act",
                                                          "pooler_output_size",
                                                          "quantization_config_dict",
                                                          "original_max_position_embeddings",
                                                          "rescale_every"});
  return std::ranges::any_of(ends, [&](std::string_view s) { return key.ends_with(s); }) ||
         std::ranges::any_of(begins, [&](std::string_view s) { return key.starts_with(s); }) ||
         std::ranges::find(whole, key) != whole.end();
}

// Keys that make another model of it wherever a family reads them.
bool is_decisive(std::string_view key) {
  constexpr auto list = std::to_array<std::string_view>({"no_rope_layers",
                                                         "moe_intermediate_size",
                                                         "num_experts",
                                                         "num_local_experts",
                                                         "n_routed_experts",
                                                         "n_shared_experts",
                                                         "layer_types",
                                                         "sliding_window_pattern",
                                                         "attention_chunk_size",
                                                         "use_qk_norm",
                                                         "qk_layernorm",
                                                         "residual_multiplier",
                                                         "embedding_multiplier",
                                                         "attention_multiplier",
                                                         "logits_scaling",
                                                         "partial_rotary_factor",
                                                         "kv_lora_rank",
                                                         "attn_logit_softcapping",
                                                         "final_logit_softcapping",
                                                         "query_pre_attn_scalar",
                                                         "layerscale_value"});
  return std::ranges::find(list, key) != list.end();
}

// A value that leaves the model as it is without the key.
bool is_neutral(const nlohmann::json& value) {
  if (value.is_array()) return std::ranges::all_of(value, [](const auto& x) { return x == "full_attention"; });
  return value.is_null() || value == false || value == 0 || value == 1;
}

}  // namespace

Expected<void> refuse_unread(const nlohmann::json& object, const std::string& file, const std::set<std::string, std::less<>>& asked) {
  for (const auto& [key, value] : object.items()) {
    if (asked.contains(key) || !is_decisive(key) || is_neutral(value)) continue;
    return fail(fmt::format("{}: \"{}\" is not read by this family, and makes another model", show(file), key),
                "is the model_type right, or --like? An architecture file can say what the family cannot: stepzero describe writes one");
  }
  return {};
}

bool is_size_key(std::string_view key) {
  constexpr auto sizes =
      std::to_array<std::string_view>({"hidden_size", "n_embd", "d_model", "num_hidden_layers", "n_layer", "num_layers",
                                       "num_attention_heads", "n_head", "num_heads", "vocab_size", "dim", "n_layers", "n_heads"});
  return std::ranges::find(sizes, key) != sizes.end();
}

const nlohmann::json* ConfigReader::find(Keys keys, std::string_view& found) {
  const nlohmann::json* value = nullptr;
  for (const std::string_view key : keys) {
    asked_.emplace(key);
    const auto it = object_.find(key);
    if (it == object_.end() || it->is_null()) continue;
    if (value != nullptr && *value != *it) {
      complain(key, fmt::format("says {}, but its other name \"{}\" says {}", show(it->dump()), found, show(value->dump())));
    }
    if (value == nullptr) {
      value = &*it;
      found = key;
    }
  }
  return value;
}

void ConfigReader::complain(std::string_view key, std::string message) {
  if (!error_.message.empty()) return;
  error_ = {fmt::format("{}: \"{}\": {}", show(file_), show(key), message), ""};
}

Index ConfigReader::count(Keys keys, Index fallback, Index low, Index high) {
  std::string_view key;
  const auto* value = find(keys, key);
  if (value == nullptr) {
    if (is_size_key(*keys.begin())) assumed_.emplace_back(*keys.begin(), fallback);
    return fallback;
  }
  const bool fits = value->is_number_integer() && *value >= low && *value <= high;
  if (!fits) {
    complain(key, fmt::format("expected a whole number from {} to {}, found {}", low, high, show(value->dump())));
    return fallback;
  }
  return value->get<Index>();
}

double ConfigReader::number(Keys keys, double fallback, double low, double high) {
  std::string_view key;
  const auto* value = find(keys, key);
  if (value == nullptr) return fallback;
  const double x = value->is_number() ? value->get<double>() : -1e300;
  if (!(x >= low && x <= high)) {
    complain(key, fmt::format("expected a number from {} to {}, found {}", low, high, show(value->dump())));
    return fallback;
  }
  return x;
}

bool ConfigReader::flag(Keys keys, bool fallback) {
  std::string_view key;
  const auto* value = find(keys, key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) {
    complain(key, fmt::format("expected true or false, found {}", show(value->dump())));
    return fallback;
  }
  return value->get<bool>();
}

std::string ConfigReader::text(Keys keys, std::string_view fallback) {
  std::string_view key;
  const auto* value = find(keys, key);
  if (value == nullptr) return std::string(fallback);
  if (!value->is_string()) {
    complain(key, fmt::format("expected a string, found {}", show(value->dump())));
    return std::string(fallback);
  }
  return value->get<std::string>();
}

const nlohmann::json* ConfigReader::object(std::string_view key) {
  std::string_view found;
  const auto* value = find({key}, found);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) complain(key, fmt::format("expected an object, found {}", show(value->dump())));
  return value->is_object() ? value : nullptr;
}

const nlohmann::json* ConfigReader::array(std::string_view key) {
  std::string_view found;
  const auto* value = find({key}, found);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) complain(key, fmt::format("expected a list, found {}", show(value->dump())));
  return value->is_array() ? value : nullptr;
}

std::vector<std::string> ConfigReader::sizes_not_given() const {
  std::vector<std::string> out;
  for (const auto& [key, value] : assumed_) out.emplace_back(key);
  return out;
}

Expected<void> ConfigReader::finish() const {
  if (!error_.message.empty()) return std::unexpected(error_);
  return refuse_unread(object_, file_, asked_);
}

std::vector<std::string> notices_of(const nlohmann::json& object, const std::string& file, const std::set<std::string, std::less<>>& asked,
                                    const std::vector<std::pair<std::string, Index>>& assumed) {
  std::vector<std::string> unread, sizes, out;
  const std::vector<std::string> known(asked.begin(), asked.end());
  for (const auto& [key, value] : object.items()) {
    if (asked.contains(key) || is_beside(key) || value.is_null()) continue;
    const std::string near = closest(key, known);
    unread.push_back(
        fmt::format("\"{}\"{}", show(key), near.empty() || object.contains(near) ? "" : fmt::format(" (did you mean \"{}\"?)", near)));
  }
  for (const auto& [key, value] : assumed) sizes.push_back(fmt::format("\"{}\" = {}", key, value));
  if (!unread.empty()) out.push_back(fmt::format("{}: not read: {}", show(file), fmt::join(unread, ", ")));
  if (!sizes.empty()) out.push_back(fmt::format("{}: not given, so the family's own: {}", show(file), fmt::join(sizes, ", ")));
  return out;
}

}  // namespace stepzero
