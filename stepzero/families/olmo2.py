# OLMo 2: norms on what branches make rather than on what they read, and of all queries and keys as one vector.
from stepzero.arch import *

arch("olmo2", width=4096, layers=32, heads=32, kv_heads=32, head_dim=128, ffn=11008, vocab=32000, positions=2048, norm_eps=1e-6,
     activation="silu", attention_bias=False, padding=-1, tied=False, rope_theta=10000.0, rope_rule=["none"], init_std=0.02)

turns = rope(rope_rule, rope_theta, head_dim)
x = tokens(vocab, width, name="model.embed_tokens", padding=padding)
stream(x)
for l in range(layers):
    p = f"model.layers.{l}."
    q = linear(x, heads * head_dim, name=p + "self_attn.q_proj", bias=attention_bias, role="query")
    k = linear(x, kv_heads * head_dim, name=p + "self_attn.k_proj", bias=attention_bias, role="key")
    v = linear(x, kv_heads * head_dim, name=p + "self_attn.v_proj", bias=attention_bias, role="value")
    q = rms_norm(q, name=p + "self_attn.q_norm", eps=norm_eps)
    k = rms_norm(k, name=p + "self_attn.k_norm", eps=norm_eps)
    q = rotary(q, heads, turns)
    k = rotary(k, kv_heads, turns)
    m = attention(q, k, v, heads, kv_heads)
    a = linear(m, width, name=p + "self_attn.o_proj", bias=attention_bias, role="attention_out")
    x = x + rms_norm(a, name=p + "post_attention_layernorm", eps=norm_eps)
    f = swiglu(x, ffn, gate=p + "mlp.gate_proj", up=p + "mlp.up_proj", down=p + "mlp.down_proj", act=activation)
    x = x + rms_norm(f, name=p + "post_feedforward_layernorm", eps=norm_eps)
    stream(x)
loss(head(rms_norm(x, name="model.norm", eps=norm_eps), vocab, name="lm_head", tied="model.embed_tokens.weight" if tied else ""))
