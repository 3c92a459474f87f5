# OLMo 3: OLMo 2 with windows in three of four layers; long-context rules turn the others only.
from stepzero.arch import *

arch("olmo3", width=key("hidden_size", 4096), layers=key("num_hidden_layers", 32), heads=key("num_attention_heads", 32),
     kv_heads=key("num_key_value_heads", 0), ffn=key("intermediate_size", 11008), vocab=key("vocab_size", 50304),
     positions=key("max_position_embeddings", 2048), norm_eps=key("rms_norm_eps", 1e-5), activation=activation_key("hidden_act", "silu"),
     attention_bias=key("attention_bias", False), window=key("sliding_window", 4096), layer_types=key("layer_types", []),
     padding=key("pad_token_id", 1, null=-1), tied=key("tie_word_embeddings", False), rope_theta=rope_theta_key(10000.0),
     rope_rule=rope_keys(key("max_position_embeddings", 2048)), init_std=key("initializer_range", 0.02))

kv_heads, head_dim = given(kv_heads, heads), width // heads
if len(layer_types) == 0:
    layer_types = ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"]
turns = rope(rope_rule, rope_theta, head_dim)
plain = rope(["none"], rope_theta, head_dim)
x = tokens(vocab, width, name="model.embed_tokens", padding=padding)
stream(x)
for l in range(layers):
    p = f"model.layers.{l}."
    slides = layer_types[l % len(layer_types)] == "sliding_attention"
    q = linear(x, heads * head_dim, name=p + "self_attn.q_proj", bias=attention_bias, role="query")
    k = linear(x, kv_heads * head_dim, name=p + "self_attn.k_proj", bias=attention_bias, role="key")
    v = linear(x, kv_heads * head_dim, name=p + "self_attn.v_proj", bias=attention_bias, role="value")
    q = rotary(rms_norm(q, name=p + "self_attn.q_norm", eps=norm_eps), heads, plain if slides else turns)
    k = rotary(rms_norm(k, name=p + "self_attn.k_norm", eps=norm_eps), kv_heads, plain if slides else turns)
    m = attention(q, k, v, heads, kv_heads, window=window if slides else 0)
    a = linear(m, width, name=p + "self_attn.o_proj", bias=attention_bias, role="attention_out")
    x = x + rms_norm(a, name=p + "post_attention_layernorm", eps=norm_eps)
    f = swiglu(x, ffn, gate=p + "mlp.gate_proj", up=p + "mlp.up_proj", down=p + "mlp.down_proj", act=activation)
    x = x + rms_norm(f, name=p + "post_feedforward_layernorm", eps=norm_eps)
    stream(x)
loss(head(rms_norm(x, name="model.norm", eps=norm_eps), vocab, name="lm_head", tied="model.embed_tokens.weight" if tied else ""))
