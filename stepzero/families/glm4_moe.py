# GLM-4.5: experts chosen by corrected sigmoids within groups, beside one that every token takes; part of a head turns.
from stepzero.arch import *

arch("glm4_moe", width=key("hidden_size", 4096), layers=key("num_hidden_layers", 46), heads=key("num_attention_heads", 96),
     kv_heads=key("num_key_value_heads", 8, null=0), head_dim=key("head_dim", 0), ffn=key("intermediate_size", 10944),
     vocab=key("vocab_size", 151552), positions=key("max_position_embeddings", 131072), norm_eps=key("rms_norm_eps", 1e-5),
     activation=activation_key("hidden_act", "silu"), attention_bias=key("attention_bias", False), qk_norm=key("use_qk_norm", False),
     n_experts=key("n_routed_experts", 128), experts_per_token=key("num_experts_per_tok", 8), shared_experts=key("n_shared_experts", 1),
     expert_ffn=key("moe_intermediate_size", 1408), dense_layers=key("first_k_dense_replace", 1),
     router_scale=key("routed_scaling_factor", 1.0), router_groups=key("n_group", 1), router_kept_groups=key("topk_group", 1),
     router_normalise=key("norm_topk_prob", True), turned_part=turned_part_key(0.5), padding=key("pad_token_id", -1),
     tied=key("tie_word_embeddings", False), rope_theta=rope_theta_key(10000.0), rope_rule=rope_keys(key("max_position_embeddings", 131072)),
     init_std=key("initializer_range", 0.02))

kv_heads, head_dim = given(kv_heads, heads), given(head_dim, width // heads)
turned = int(head_dim * turned_part)
turns = rope(rope_rule, rope_theta, turned + turned % 2)


def mixture(x, p):
    choice = linear(x, n_experts, name=p + "gate", role="router")
    e = p + "experts.{}."
    routed = experts(x, choice, expert_ffn, [e + "gate_proj", e + "up_proj", e + "down_proj"], experts_per_token, act=activation,
                     sigmoid=True, normalise=router_normalise, factor=router_scale, groups=router_groups, kept_groups=router_kept_groups,
                     group_best=2, correction=p + "gate.e_score_correction_bias", label="experts")
    return shared_expert(x, routed, shared_experts * expert_ffn, p + "shared_experts.", activation)


x = tokens(vocab, width, name="model.embed_tokens", padding=padding)
stream(x)
for l in range(layers):
    p = f"model.layers.{l}."
    h = rms_norm(x, name=p + "input_layernorm", eps=norm_eps)
    q = linear(h, heads * head_dim, name=p + "self_attn.q_proj", bias=attention_bias, role="query")
    k = linear(h, kv_heads * head_dim, name=p + "self_attn.k_proj", bias=attention_bias, role="key")
    v = linear(h, kv_heads * head_dim, name=p + "self_attn.v_proj", bias=attention_bias, role="value")
    if qk_norm:
        q = rms_norm(q, name=p + "self_attn.q_norm", groups=heads, eps=norm_eps)
        k = rms_norm(k, name=p + "self_attn.k_norm", groups=kv_heads, eps=norm_eps)
    m = attention(rotary(q, heads, turns), rotary(k, kv_heads, turns), v, heads, kv_heads)
    x = x + linear(m, width, name=p + "self_attn.o_proj", role="attention_out")
    h = rms_norm(x, name=p + "post_attention_layernorm", eps=norm_eps)
    if l < dense_layers:
        x = x + swiglu(h, ffn, gate=p + "mlp.gate_proj", up=p + "mlp.up_proj", down=p + "mlp.down_proj", act=activation)
    else:
        x = x + mixture(h, p + "mlp.")
    stream(x)
loss(head(rms_norm(x, name="model.norm", eps=norm_eps), vocab, name="lm_head", tied="model.embed_tokens.weight" if tied else ""))
