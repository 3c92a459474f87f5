# gpt-oss: a sink in every softmax, windows in every second layer, experts whose gates and values are kept within limits.
from stepzero.arch import *

ignored("hidden_act", "swiglu_limit", "experts_per_token", "initial_context_length", "quantization_config", "attention_bias")
arch("gpt_oss", width=key("hidden_size", 2880), layers=key("num_hidden_layers", 36), heads=key("num_attention_heads", 64),
     kv_heads=key("num_key_value_heads", 8, null=0), head_dim=key("head_dim", 64, null=0), expert_ffn=key("intermediate_size", 2880),
     vocab=key("vocab_size", 201088), positions=key("max_position_embeddings", 131072), norm_eps=key("rms_norm_eps", 1e-5),
     window=key("sliding_window", 128), layer_types=key("layer_types", []), n_experts=key("num_local_experts", 128),
     experts_per_token=key("num_experts_per_tok", 4), padding=key("pad_token_id", -1), tied=key("tie_word_embeddings", False),
     rope_theta=rope_theta_key(150000.0),
     rope_rule=rope_keys(key("max_position_embeddings", 131072), ["yarn", 32.0, 4096, 32.0, 1.0, False, 0.1 * log(32.0) + 1]),
     init_std=key("initializer_range", 0.02))

kv_heads, head_dim = given(kv_heads, heads), given(head_dim, width // heads)
if len(layer_types) == 0:
    layer_types = ["sliding_attention", "full_attention"]
turns = rope(rope_rule, rope_theta, head_dim)
x = tokens(vocab, width, name="model.embed_tokens", padding=padding)
stream(x)
for l in range(layers):
    p = f"model.layers.{l}."
    slides = layer_types[l % len(layer_types)] == "sliding_attention"
    h = rms_norm(x, name=p + "input_layernorm", eps=norm_eps)
    q = rotary(linear(h, heads * head_dim, name=p + "self_attn.q_proj", bias=True, role="query"), heads, turns)
    k = rotary(linear(h, kv_heads * head_dim, name=p + "self_attn.k_proj", bias=True, role="key"), kv_heads, turns)
    v = linear(h, kv_heads * head_dim, name=p + "self_attn.v_proj", bias=True, role="value")
    m = attention(q, k, v, heads, kv_heads, window=window if slides else 0, sinks=p + "self_attn.sinks", sinks_init=normal(init_std))
    x = x + linear(m, width, name=p + "self_attn.o_proj", bias=True, role="attention_out")
    h = rms_norm(x, name=p + "post_attention_layernorm", eps=norm_eps)
    choice = linear(h, n_experts, name=p + "mlp.router", bias=True, bias_init=normal(init_std), role="router")
    e = p + "mlp.experts."
    x = x + fused_experts(h, choice, expert_ffn, e + "gate_up_proj", e + "down_proj", experts_per_token, act="quick_gelu", interleaved=True,
                          biases=[e + "gate_up_proj_bias", e + "down_proj_bias"], most=7.0, offset=1.0)
    stream(x)
loss(head(rms_norm(x, name="model.norm", eps=norm_eps), vocab, name="lm_head", tied="model.embed_tokens.weight" if tied else ""))
