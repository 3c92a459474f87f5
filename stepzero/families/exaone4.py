# EXAONE 4: norms on what branches make and on each head's queries and keys; full layers do not turn.
from stepzero.arch import *

arch("exaone4", width=key("hidden_size", 4096), layers=key("num_hidden_layers", 32), heads=key("num_attention_heads", 32),
     kv_heads=key("num_key_value_heads", 32, null=0), head_dim=key("head_dim", 0), ffn=key("intermediate_size", 16384),
     vocab=key("vocab_size", 102400), positions=key("max_position_embeddings", 2048), norm_eps=key("rms_norm_eps", 1e-5),
     activation=activation_key("hidden_act", "silu"), window=key("sliding_window", 4096, null=0), layer_types=key("layer_types", []),
     full_every=key("sliding_window_pattern", 4, null=0), padding=key("pad_token_id", -1), tied=key("tie_word_embeddings", False),
     rope_theta=rope_theta_key(10000.0), rope_rule=rope_keys(key("max_position_embeddings", 2048)), init_std=key("initializer_range", 0.02))

kv_heads, head_dim = given(kv_heads, heads), given(head_dim, width // heads)
turns = rope(rope_rule, rope_theta, head_dim)
x = tokens(vocab, width, name="model.embed_tokens", padding=padding)
stream(x)
for l in range(layers):
    p = f"model.layers.{l}."
    slides = full_every > 0 and (l + 1) % full_every != 0
    if len(layer_types) > 0:
        slides = layer_types[l % len(layer_types)] == "sliding_attention"
    q = linear(x, heads * head_dim, name=p + "self_attn.q_proj", role="query")
    k = linear(x, kv_heads * head_dim, name=p + "self_attn.k_proj", role="key")
    v = linear(x, kv_heads * head_dim, name=p + "self_attn.v_proj", role="value")
    q = rms_norm(q, name=p + "self_attn.q_norm", groups=heads, eps=norm_eps)
    k = rms_norm(k, name=p + "self_attn.k_norm", groups=kv_heads, eps=norm_eps)
    if slides or window == 0:
        q, k = rotary(q, heads, turns), rotary(k, kv_heads, turns)
    m = attention(q, k, v, heads, kv_heads, window=window if slides else 0)
    a = linear(m, width, name=p + "self_attn.o_proj", role="attention_out")
    x = x + rms_norm(a, name=p + "post_attention_layernorm", eps=norm_eps)
    f = swiglu(x, ffn, gate=p + "mlp.gate_proj", up=p + "mlp.up_proj", down=p + "mlp.down_proj", act=activation)
    x = x + rms_norm(f, name=p + "post_feedforward_layernorm", eps=norm_eps)
    stream(x)
loss(head(rms_norm(x, name="model.norm", eps=norm_eps), vocab, name="lm_head", tied="model.embed_tokens.weight" if tied else ""))
