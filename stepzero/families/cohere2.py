# Cohere 2: Cohere with windows in three of four layers, which alone turn their queries and keys.
from stepzero.arch import *

ignored("head_dim")  # the class always divides the width by the heads
arch("cohere2", width=key("hidden_size", 8192), layers=key("num_hidden_layers", 40), heads=key("num_attention_heads", 64),
     kv_heads=key("num_key_value_heads", 0), ffn=key("intermediate_size", 22528), vocab=key("vocab_size", 256000),
     positions=key("max_position_embeddings", 8192), norm_eps=key("layer_norm_eps", 1e-5), activation=activation_key("hidden_act", "silu"),
     attention_bias=key("attention_bias", False), window=key("sliding_window", 4096, null=0), layer_types=key("layer_types", []),
     full_every=key("sliding_window_pattern", 4, also=["_sliding_window_pattern"]), logit_scale=key("logit_scale", 0.0625),
     padding=key("pad_token_id", 0, null=-1), tied=key("tie_word_embeddings", True), rope_theta=rope_theta_key(10000.0),
     rope_rule=rope_keys(key("max_position_embeddings", 8192)), init_std=key("initializer_range", 0.02))

kv_heads, head_dim = given(kv_heads, heads), width // heads
turns = rope(rope_rule, rope_theta, head_dim)
x = tokens(vocab, width, name="model.embed_tokens", padding=padding)
stream(x)
for l in range(layers):
    p = f"model.layers.{l}."
    slides = layer_types[l % len(layer_types)] == "sliding_attention" if len(layer_types) > 0 else (l + 1) % full_every != 0
    h = layer_norm(x, name=p + "input_layernorm", bias=False, eps=norm_eps)
    q = linear(h, heads * head_dim, name=p + "self_attn.q_proj", bias=attention_bias, role="query")
    k = linear(h, kv_heads * head_dim, name=p + "self_attn.k_proj", bias=attention_bias, role="key")
    v = linear(h, kv_heads * head_dim, name=p + "self_attn.v_proj", bias=attention_bias, role="value")
    if slides:
        q, k = rotary(q, heads, turns, interleaved=True), rotary(k, kv_heads, turns, interleaved=True)
    m = attention(q, k, v, heads, kv_heads, window=window if slides else 0)
    a = linear(m, width, name=p + "self_attn.o_proj", bias=attention_bias, role="attention_out")
    x = x + a + swiglu(h, ffn, gate=p + "mlp.gate_proj", up=p + "mlp.up_proj", down=p + "mlp.down_proj", act=activation)
    stream(x)
x = layer_norm(x, name="model.norm", bias=False, eps=norm_eps)
loss(head(x, vocab, name="lm_head", tied="model.embed_tokens.weight" if tied else "", scale=logit_scale))
