# StableLM: LayerNorm, a part of each head turns; optional norms with a gain a head, and blocks with both branches on one norm.
from stepzero.arch import *

arch("stablelm", width=4096, layers=32, heads=32, kv_heads=32, head_dim=128, ffn=11008, vocab=32000, positions=2048, norm_eps=1e-6,
     activation="silu", attention_bias=False, qk_norm="none", parallel_block=False, turned=32, padding=-1, tied=False, rope_theta=10000.0,
     rope_rule=["none"], init_std=0.02)

turns = rope(rope_rule, rope_theta, turned)
x = tokens(vocab, width, name="model.embed_tokens", padding=padding)
stream(x)
for l in range(layers):
    p = f"model.layers.{l}."
    h = layer_norm(x, name=p + "input_layernorm", eps=norm_eps)
    q = linear(h, heads * head_dim, name=p + "self_attn.q_proj", bias=attention_bias, role="query")
    k = linear(h, kv_heads * head_dim, name=p + "self_attn.k_proj", bias=attention_bias, role="key")
    v = linear(h, kv_heads * head_dim, name=p + "self_attn.v_proj", bias=attention_bias, role="value")
    if qk_norm == "each_head":
        names = [f"{p}self_attn.q_layernorm.norms.{n}" for n in range(heads)]
        q = layer_norm(q, groups=heads, each=True, names=names, bias=False, eps=norm_eps)
        names = [f"{p}self_attn.k_layernorm.norms.{n}" for n in range(kv_heads)]
        k = layer_norm(k, groups=kv_heads, each=True, names=names, bias=False, eps=norm_eps)
    q = rotary(q, heads, turns)
    k = rotary(k, kv_heads, turns)
    a = linear(attention(q, k, v, heads, kv_heads), width, name=p + "self_attn.o_proj", role="attention_out")
    if not parallel_block:
        x = x + a
        h = layer_norm(x, name=p + "post_attention_layernorm", eps=norm_eps)
    f = swiglu(h, ffn, gate=p + "mlp.gate_proj", up=p + "mlp.up_proj", down=p + "mlp.down_proj", act=activation)
    x = x + a + f if parallel_block else x + f
    stream(x)
loss(head(layer_norm(x, name="model.norm", eps=norm_eps), vocab, name="lm_head", tied="model.embed_tokens.weight" if tied else ""))
