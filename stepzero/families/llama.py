# LLaMA: RMSNorm before gated branches, rotary positions, groups of heads that share keys and values.
from stepzero.arch import *

arch("llama", width=4096, layers=32, heads=32, kv_heads=32, head_dim=128, ffn=11008, vocab=32000, positions=2048, norm_eps=1e-6,
     activation="silu", attention_bias=False, mlp_bias=False, padding=-1, tied=False, rope_theta=10000.0, rope_rule=["none"], init_std=0.02)

turns = rope(rope_rule, rope_theta, head_dim)
x = tokens(vocab, width, name="model.embed_tokens", padding=padding)
stream(x)
for l in range(layers):
    p = f"model.layers.{l}."
    h = rms_norm(x, name=p + "input_layernorm", eps=norm_eps)
    q = linear(h, heads * head_dim, name=p + "self_attn.q_proj", bias=attention_bias, role="query")
    k = linear(h, kv_heads * head_dim, name=p + "self_attn.k_proj", bias=attention_bias, role="key")
    v = linear(h, kv_heads * head_dim, name=p + "self_attn.v_proj", bias=attention_bias, role="value")
    q = rotary(q, heads, turns)
    k = rotary(k, kv_heads, turns)
    m = attention(q, k, v, heads, kv_heads)
    x = x + linear(m, width, name=p + "self_attn.o_proj", bias=attention_bias, role="attention_out")
    h = rms_norm(x, name=p + "post_attention_layernorm", eps=norm_eps)
    x = x + swiglu(h, ffn, gate=p + "mlp.gate_proj", up=p + "mlp.up_proj", down=p + "mlp.down_proj", act=activation, bias=mlp_bias)
    stream(x)
loss(head(rms_norm(x, name="model.norm", eps=norm_eps), vocab, name="lm_head", tied="model.embed_tokens.weight" if tied else ""))
