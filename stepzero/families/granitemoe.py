# Granite MoE: Granite's scales on embeddings, scores, branches and logits, and experts stacked in two tensors.
from stepzero.arch import *

arch("granitemoe", width=key("hidden_size", 4096), layers=key("num_hidden_layers", 32), heads=key("num_attention_heads", 32),
     kv_heads=key("num_key_value_heads", 0), ffn=key("intermediate_size", 11008), vocab=key("vocab_size", 32000),
     positions=key("max_position_embeddings", 2048), norm_eps=key("rms_norm_eps", 1e-6), activation=activation_key("hidden_act", "silu"),
     attention_bias=key("attention_bias", False), n_experts=key("num_local_experts", 8), experts_per_token=key("num_experts_per_tok", 2),
     embedding_scale=key("embedding_multiplier", 1.0), attention_scale=key("attention_multiplier", 1.0),
     residual_scale=key("residual_multiplier", 1.0), logit_scale=1 / key("logits_scaling", 1.0), position_kind=key("position_embedding_type", "rope"),
     padding=key("pad_token_id", -1),
     tied=key("tie_word_embeddings", False), rope_theta=rope_theta_key(10000.0), rope_rule=rope_keys(key("max_position_embeddings", 2048)),
     init_std=key("initializer_range", 0.02))

if position_kind != "rope":
    fail("position_embedding_type: only \"rope\" is read")
kv_heads, head_dim = given(kv_heads, heads), width // heads
turns = rope(rope_rule, rope_theta, head_dim)
x = tokens(vocab, width, name="model.embed_tokens", padding=padding)
if embedding_scale != 1:
    x = scale(x, embedding_scale)
stream(x)
for l in range(layers):
    p = f"model.layers.{l}."
    h = rms_norm(x, name=p + "input_layernorm", eps=norm_eps)
    q = linear(h, heads * head_dim, name=p + "self_attn.q_proj", bias=attention_bias, role="query")
    k = linear(h, kv_heads * head_dim, name=p + "self_attn.k_proj", bias=attention_bias, role="key")
    v = linear(h, kv_heads * head_dim, name=p + "self_attn.v_proj", bias=attention_bias, role="value")
    m = attention(rotary(q, heads, turns), rotary(k, kv_heads, turns), v, heads, kv_heads, scale=attention_scale)
    x = x + residual_scale * linear(m, width, name=p + "self_attn.o_proj", bias=attention_bias, role="attention_out")
    h = rms_norm(x, name=p + "post_attention_layernorm", eps=norm_eps)
    e = p + "block_sparse_moe."
    choice = linear(h, n_experts, name=e + "router.layer", role="router")
    x = x + residual_scale * experts(h, choice, ffn, [e + "input_linear", e + "output_linear"], experts_per_token, act=activation)
    stream(x)
loss(head(rms_norm(x, name="model.norm", eps=norm_eps), vocab, name="lm_head", tied="model.embed_tokens.weight" if tied else "", scale=logit_scale))
