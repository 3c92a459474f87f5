// BERT and RoBERTa with their masked-language-model heads.
#include "stepzero/models/families.hpp"

namespace stepzero {

namespace {

Architecture bert_like(ConfigReader& c, std::string_view family, Index vocab, Index padding) {
  Architecture a = import_sizes(c, family, {768, 12, 12, 0, 0, 3072, vocab, 512});
  a.token_types = c.count({"type_vocab_size"}, 2);
  a.norm_eps = c.number({"layer_norm_eps"}, 1e-12, 0);
  a.norm_placement = NormPlacement::post;
  a.embedding_norm = true;
  a.causal = c.flag({"is_decoder"}, false);
  a.head_transform = a.head_bias = true;
  a.tied = c.flag({"tie_word_embeddings"}, true);
  import_activation(c, a, "hidden_act", "gelu");
  import_padding(c, a, padding);
  if (c.text({"position_embedding_type"}, "absolute") != "absolute") {
    c.complain("position_embedding_type", "only \"absolute\" is supported");
  }
  if (c.flag({"add_cross_attention"}, false)) c.complain("add_cross_attention", "cross-attention is not supported");
  return a;
}

Expected<Architecture> import_bert(const nlohmann::json& config, const std::string& file) {
  ConfigReader c(config, file);
  Architecture a = bert_like(c, "bert", 30522, 0);
  return finish(c, a);
}

// Positions are counted from pad_token_id + 1, over the tokens that are not padding.
Expected<Architecture> import_roberta(const nlohmann::json& config, const std::string& file) {
  ConfigReader c(config, file);
  Architecture a = bert_like(c, "roberta", 50265, 1);
  if (a.padding == Architecture::no_padding) c.complain("pad_token_id", "must be a number: positions are counted from it");
  a.position_offset = a.padding + 1;
  a.position_skips_padding = true;
  a.head_gelu = true;
  a.positions -= a.position_offset;
  if (a.positions < 1) c.complain("max_position_embeddings", "leaves no position: the first pad_token_id + 1 rows are not used");
  return finish(c, a);
}

constexpr TensorNames bert_names = {.token = "bert.embeddings.word_embeddings",
                                    .token_type = "bert.embeddings.token_type_embeddings",
                                    .position = "bert.embeddings.position_embeddings",
                                    .embedding_norm = "bert.embeddings.LayerNorm",
                                    .project_in = "bert.embeddings.project_in",
                                    .project_out = "cls.predictions.project_out",
                                    .block = "bert.encoder.layer.{}.",
                                    .attn_norm = "attention.output.LayerNorm",
                                    .qkv = "attention.self.query_key_value",
                                    .q = "attention.self.query",
                                    .k = "attention.self.key",
                                    .v = "attention.self.value",
                                    .q_norm = "attention.self.query_norm",
                                    .k_norm = "attention.self.key_norm",
                                    .attn_out = "attention.output.dense",
                                    .attn_post_norm = "attention.output.LayerNorm_post",
                                    .ffn_norm = "output.LayerNorm",
                                    .ffn_gate_in = "intermediate.gate_dense",
                                    .ffn_gate = "intermediate.gate",
                                    .ffn_in = "intermediate.dense",
                                    .ffn_out = "output.dense",
                                    .ffn_post_norm = "output.LayerNorm_post",
                                    .final_norm = "bert.encoder.LayerNorm",
                                    .head_dense = "cls.predictions.transform.dense",
                                    .head_norm = "cls.predictions.transform.LayerNorm",
                                    .head = "cls.predictions.decoder",
                                    .head_bias = "cls.predictions.bias",
                                    .optional_prefix = "bert."};

constexpr TensorNames roberta_names() {
  TensorNames n = bert_names;
  n.token = "roberta.embeddings.word_embeddings";
  n.token_type = "roberta.embeddings.token_type_embeddings";
  n.position = "roberta.embeddings.position_embeddings";
  n.embedding_norm = "roberta.embeddings.LayerNorm";
  n.project_in = "roberta.embeddings.project_in";
  n.project_out = "lm_head.project_out";
  n.block = "roberta.encoder.layer.{}.";
  n.final_norm = "roberta.encoder.LayerNorm";
  n.head_dense = "lm_head.dense";
  n.head_norm = "lm_head.layer_norm";
  n.head = "lm_head.decoder";
  n.head_bias = "lm_head.bias";
  n.optional_prefix = "roberta.";
  return n;
}

}  // namespace

const Family bert_family = {.model_type = "bert", .names = bert_names, .import = import_bert};
const Family roberta_family = {.model_type = "roberta", .names = roberta_names(), .import = import_roberta};

}  // namespace stepzero
