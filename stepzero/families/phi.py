# Phi: both branches read one norm, a part of each head turns, biases everywhere.
from stepzero.arch import *

arch("phi", width=2048, layers=24, heads=32, kv_heads=32, head_dim=64, ffn=8192, vocab=51200, positions=2048, norm_eps=1e-5,
     activation="gelu_tanh", qk_norm="none", padding=-1, turned=32, tied=False, rope_theta=10000.0, rope_rule=["none"], init_std=0.02)

turns = rope(rope_rule, rope_theta, turned)
x = tokens(vocab, width, name="model.embed_tokens", padding=padding)
stream(x)
for l in range(layers):
    p = f"model.layers.{l}."
    h = layer_norm(x, name=p + "input_layernorm", eps=norm_eps)
    q = linear(h, heads * head_dim, name=p + "self_attn.q_proj", bias=True, role="query")
    k = linear(h, kv_heads * head_dim, name=p + "self_attn.k_proj", bias=True, role="key")
    v = linear(h, kv_heads * head_dim, name=p + "self_attn.v_proj", bias=True, role="value")
    if qk_norm == "head":
        q = layer_norm(q, name=p + "self_attn.q_layernorm", groups=heads, eps=norm_eps)
        k = layer_norm(k, name=p + "self_attn.k_layernorm", groups=kv_heads, eps=norm_eps)
    q = rotary(q, heads, turns)
    k = rotary(k, kv_heads, turns)
    a = linear(attention(q, k, v, heads, kv_heads), width, name=p + "self_attn.dense", bias=True, role="attention_out")
    f = function(linear(h, ffn, name=p + "mlp.fc1", bias=True, role="ffn_in"), activation)
    f = linear(f, width, name=p + "mlp.fc2", bias=True, role="ffn_out")
    x = x + a + f
    stream(x)
x = layer_norm(x, name="model.final_layernorm", eps=norm_eps)
loss(head(x, vocab, name="lm_head", tied="model.embed_tokens.weight" if tied else "", bias="lm_head.bias"))
