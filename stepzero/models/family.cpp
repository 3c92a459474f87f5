#include "stepzero/models/family.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"
#include "stepzero/models/families.hpp"

namespace stepzero {

std::span<const Family> families() {
  static const std::array list = {gpt2_family,        bert_family,        roberta_family, llama_family,      mistral_family,
                                  qwen2_family,       qwen3_family,       gemma_family,   gemma2_family,     gemma3_family,
                                  gemma3_text_family, phi_family,         phi3_family,    gpt_neox_family,   gptj_family,
                                  falcon_family,      opt_family,         bloom_family,   granite_family,    olmo_family,
                                  olmo2_family,       stablelm_family,    cohere_family,  starcoder2_family, mixtral_family,
                                  deepseek_v2_family, deepseek_v3_family, t5_family,      vit_family,        cnn_family};
  return list;
}

const Family* find_family(std::string_view model_type) {
  const auto list = families();
  const auto it = std::ranges::find(list, model_type, &Family::model_type);
  return it == list.end() ? nullptr : &*it;
}

TensorNames tensor_names(const Architecture& a) {
  const Family* family = find_family(a.family);
  if (family == nullptr) return {};  // a file of its own
  TensorNames names = family->names;
  if (family->rename != nullptr) family->rename(a, names);
  return names;
}

TensorNames encoder_names(const Architecture& a) {
  const Family* family = find_family(a.family);
  TensorNames names = *family->encoder;
  if (family->rename != nullptr) family->rename(a, names);
  return names;
}

Architecture import_sizes(ConfigReader& c, std::string_view family, const Sizes& d) {
  Architecture a;
  a.family = family;
  a.width = c.count({"hidden_size"}, d.width);
  a.layers = c.count({"num_hidden_layers"}, d.layers, 1, Architecture::most_layers);
  a.heads = c.count({"num_attention_heads"}, d.heads);
  a.kv_heads = c.count({"num_key_value_heads"}, c.has("num_key_value_heads") ? 0 : d.kv_heads);
  a.head_dim = c.count({"head_dim"}, d.head_dim);
  a.ffn = c.count({"intermediate_size"}, d.ffn);
  a.vocab = c.count({"vocab_size"}, d.vocab);
  a.positions = c.count({"max_position_embeddings"}, d.positions);
  a.init_std = c.number({"initializer_range"}, 0.02, 0);
  return a;
}

void import_activation(ConfigReader& c, Architecture& a, std::string_view key, std::string_view fallback) {
  const auto activation = parse_activation(c.text({key}, fallback));
  if (!activation) c.complain(key, activation.error().message);
  a.activation = activation.value_or(a.activation);
}

void import_padding(ConfigReader& c, Architecture& a, Index fallback) {
  if (c.is_null("pad_token_id")) return;
  const Index id = c.count({"pad_token_id"}, fallback, -a.vocab, std::numeric_limits<std::int32_t>::max());
  if (!c.has("pad_token_id") && id == Architecture::no_padding) return;
  if (id >= a.vocab) {
    c.complain("pad_token_id", fmt::format("{} lies outside the vocabulary of {}{}", id, a.vocab,
                                           c.has("pad_token_id") ? "" : ", and is the family's default: set it to null"));
  }
  a.padding = id < 0 ? a.vocab + id : id;  // as torch counts
}

bool import_layer_types(ConfigReader& c, Architecture& a) {
  const auto* list = c.array("layer_types");
  if (list == nullptr) return false;
  if (std::cmp_not_equal(list->size(), a.layers)) {
    c.complain("layer_types", fmt::format("has {} entries for {} layers", list->size(), a.layers));
  }
  for (const auto& entry : *list) {
    const std::string type = entry.is_string() ? entry.get<std::string>() : entry.dump();
    if (type != "sliding_attention" && type != "full_attention") {
      c.complain("layer_types", fmt::format("\"{}\" is neither \"full_attention\" nor \"sliding_attention\"", show(type)));
    }
    a.layer_types += type == "sliding_attention" ? 's' : 'f';
  }
  return true;
}

Expected<Architecture> finish(const ConfigReader& c, Architecture a) {
  if (auto done = c.finish(); !done) return std::unexpected(done.error());
  a.notices = c.notices();
  a.sizes_not_given = c.sizes_not_given();
  return a;
}

}  // namespace stepzero
