# Gemma 3: norms on both sides of a branch and of each head, windows in most layers, which turn by a theta of their own.
from stepzero.arch import *

arch("gemma3_text", width=4096, layers=32, heads=32, kv_heads=32, head_dim=128, ffn=11008, vocab=32000, positions=2048, norm_eps=1e-6,
     activation="gelu_tanh", attention_bias=False, embedding_scale=1.0, attention_scale=0.0625, attention_softcap=0.0, logit_softcap=0.0,
     window=0, layer_types="sf", padding=-1, tied=True, rope_theta_window=10000.0, rope_theta=10000.0, rope_rule=["none"], init_std=0.02)

turns = rope(rope_rule, rope_theta, head_dim)
x = tokens(vocab, width, name="model.embed_tokens", padding=padding)
x = scale(x, embedding_scale)
stream(x)
for l in range(layers):
    p = f"model.layers.{l}."
    sees = window if layer_types == "" or layer_types[l % len(layer_types)] == "s" else 0
    h = rms_norm(x, name=p + "input_layernorm", offset=True, eps=norm_eps)
    q = linear(h, heads * head_dim, name=p + "self_attn.q_proj", bias=attention_bias, role="query")
    k = linear(h, kv_heads * head_dim, name=p + "self_attn.k_proj", bias=attention_bias, role="key")
    v = linear(h, kv_heads * head_dim, name=p + "self_attn.v_proj", bias=attention_bias, role="value")
    q = rms_norm(q, name=p + "self_attn.q_norm", groups=heads, offset=True, eps=norm_eps)
    k = rms_norm(k, name=p + "self_attn.k_norm", groups=kv_heads, offset=True, eps=norm_eps)
    if sees > 0 and rope_theta_window > 0:
        q, k = rotary(q, heads, theta=rope_theta_window), rotary(k, kv_heads, theta=rope_theta_window)
    else:
        q = rotary(q, heads, turns)
        k = rotary(k, kv_heads, turns)
    m = attention(q, k, v, heads, kv_heads, scale=attention_scale, window=sees, softcap=attention_softcap)
    a = linear(m, width, name=p + "self_attn.o_proj", bias=attention_bias, role="attention_out")
    x = x + rms_norm(a, name=p + "post_attention_layernorm", offset=True, eps=norm_eps)
    h = rms_norm(x, name=p + "pre_feedforward_layernorm", offset=True, eps=norm_eps)
    f = swiglu(h, ffn, gate=p + "mlp.gate_proj", up=p + "mlp.up_proj", down=p + "mlp.down_proj", act=activation)
    x = x + rms_norm(f, name=p + "post_feedforward_layernorm", offset=True, eps=norm_eps)
    stream(x)
x = rms_norm(x, name="model.norm", offset=True, eps=norm_eps)
loss(head(x, vocab, name="lm_head", tied="model.embed_tokens.weight" if tied else "", cap=logit_softcap))
