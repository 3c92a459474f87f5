# OLMoE: experts in every layer, and norms of all queries and of all keys as one vector.
from stepzero.arch import *

arch("olmoe", width=key("hidden_size", 2048), layers=key("num_hidden_layers", 16), heads=key("num_attention_heads", 16),
     kv_heads=key("num_key_value_heads", 0), ffn=key("intermediate_size", 2048), vocab=key("vocab_size", 50304),
     positions=key("max_position_embeddings", 4096), norm_eps=key("rms_norm_eps", 1e-5), activation=activation_key("hidden_act", "silu"),
     attention_bias=key("attention_bias", False), clip_qkv=key("clip_qkv", 0.0), n_experts=key("num_experts", 64),
     experts_per_token=key("num_experts_per_tok", 8), router_normalise=key("norm_topk_prob", False),
     padding=key("pad_token_id", 1, null=-1), tied=key("tie_word_embeddings", False), rope_theta=rope_theta_key(10000.0),
     rope_rule=rope_keys(key("max_position_embeddings", 4096)), init_std=key("initializer_range", 0.02))

kv_heads, head_dim = given(kv_heads, heads), width // heads
turns = rope(rope_rule, rope_theta, head_dim)
x = tokens(vocab, width, name="model.embed_tokens", padding=padding)
stream(x)
for l in range(layers):
    p = f"model.layers.{l}."
    h = rms_norm(x, name=p + "input_layernorm", eps=norm_eps)
    q = linear(h, heads * head_dim, name=p + "self_attn.q_proj", bias=attention_bias, role="query")
    k = linear(h, kv_heads * head_dim, name=p + "self_attn.k_proj", bias=attention_bias, role="key")
    v = linear(h, kv_heads * head_dim, name=p + "self_attn.v_proj", bias=attention_bias, role="value")
    q = rms_norm(q, name=p + "self_attn.q_norm", eps=norm_eps)
    k = rms_norm(k, name=p + "self_attn.k_norm", eps=norm_eps)
    if clip_qkv > 0:
        q, k, v = [clip(y, clip_qkv) for y in [q, k, v]]
    m = attention(rotary(q, heads, turns), rotary(k, kv_heads, turns), v, heads, kv_heads)
    x = x + linear(m, width, name=p + "self_attn.o_proj", bias=attention_bias, role="attention_out")
    h = rms_norm(x, name=p + "post_attention_layernorm", eps=norm_eps)
    choice = linear(h, n_experts, name=p + "mlp.gate", role="router")
    e = p + "mlp.experts.{}."
    x = x + experts(h, choice, ffn, [e + "gate_proj", e + "up_proj", e + "down_proj"], experts_per_token, act=activation,
                    normalise=router_normalise)
    stream(x)
loss(head(rms_norm(x, name="model.norm", eps=norm_eps), vocab, name="lm_head", tied="model.embed_tokens.weight" if tied else ""))
