# Llama 4: attention within chunks where positions turn, over everything where they do not; experts read what their gates scale.
from stepzero.arch import *

ignored("attention_bias", "for_llm_compressor", "no_rope_layer_interval", "cache_implementation", "rope_parameters")
arch("llama4_text", width=key("hidden_size", 5120), layers=key("num_hidden_layers", 48), heads=key("num_attention_heads", 40),
     kv_heads=key("num_key_value_heads", 8, null=0), head_dim=key("head_dim", 128, null=0), expert_ffn=key("intermediate_size", 8192),
     ffn=key("intermediate_size_mlp", 16384), vocab=key("vocab_size", 202048), positions=key("max_position_embeddings", 131072),
     norm_eps=key("rms_norm_eps", 1e-5), activation=activation_key("hidden_act", "silu"), n_experts=key("num_local_experts", 16),
     experts_per_token=key("num_experts_per_tok", 1), moe_step=key("interleave_moe_layer_step", 1), moe_layers=key("moe_layers", []),
     qk_norm=key("use_qk_norm", True), nope_interval=key("no_rope_layer_interval", 4), rope_layers=key("no_rope_layers", []),
     layer_types=key("layer_types", []), chunk=key("attention_chunk_size", 8192, null=0), tuned=key("attn_temperature_tuning", None),
     floor_scale=key("floor_scale", 8192.0), attn_scale=key("attn_scale", 0.1), padding=key("pad_token_id", -1),
     tied=key("tie_word_embeddings", False), rope_theta=rope_theta_key(500000.0), rope_rule=rope_keys(key("max_position_embeddings", 131072)),
     init_std=key("initializer_range", 0.02))

kv_heads, head_dim = given(kv_heads, heads), given(head_dim, width // heads)
if len(rope_layers) == 0:
    rope_layers = [1 if (l + 1) % nope_interval != 0 else 0 for l in range(layers)]
if len(moe_layers) == 0 and n_experts > 0:
    moe_layers = [l for l in range(layers) if (l + 1) % moe_step == 0]
turns = rope(rope_rule, rope_theta, head_dim)


# The class norms heads after it has turned them, which makes no difference: the norm has no gains, and turns keep sizes.
def turned(x, n):
    return rotary(rms_norm(x, groups=n, gain=False, eps=norm_eps) if qk_norm else x, n, turns, interleaved=True)


def mixture(x, p):
    choice = linear(x, n_experts, name=p + "router", role="router")
    routed = fused_experts(x, choice, expert_ffn, p + "experts.gate_up_proj", p + "experts.down_proj", experts_per_token, act=activation,
                           sigmoid=True, normalise=False, scales_input=True, label="experts")
    return shared_expert(x, routed, expert_ffn, p + "shared_expert.", activation)


x = tokens(vocab, width, name="model.embed_tokens", padding=padding)
stream(x)
for l in range(layers):
    p = f"model.layers.{l}."
    turn = rope_layers[l] != 0
    chunked = layer_types[l] == "chunked_attention" if len(layer_types) > 0 else turn
    h = rms_norm(x, name=p + "input_layernorm", eps=norm_eps)
    q = linear(h, heads * head_dim, name=p + "self_attn.q_proj", role="query")
    k = linear(h, kv_heads * head_dim, name=p + "self_attn.k_proj", role="key")
    v = linear(h, kv_heads * head_dim, name=p + "self_attn.v_proj", role="value")
    if turn:
        q, k = turned(q, heads), turned(k, kv_heads)
    elif tuned is None or tuned:
        q = temperature(q, attn_scale, floor_scale)
    m = attention(q, k, v, heads, kv_heads, chunk=chunk if chunked else 0)
    x = x + linear(m, width, name=p + "self_attn.o_proj", role="attention_out")
    h = rms_norm(x, name=p + "post_attention_layernorm", eps=norm_eps)
    f = p + "feed_forward."
    x = x + (mixture(h, f) if l in moe_layers else swiglu(h, ffn, gate=f + "gate_proj", up=f + "up_proj", down=f + "down_proj", act=activation))
    stream(x)
loss(head(rms_norm(x, name="model.norm", eps=norm_eps), vocab, name="lm_head", tied="model.embed_tokens.weight" if tied else ""))
