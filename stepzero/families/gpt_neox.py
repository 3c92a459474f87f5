# GPT-NeoX: one matrix holds queries, keys and values head by head, a part of each head turns, branches are parallel.
from stepzero.arch import *

arch("gpt_neox", width=6144, layers=44, heads=64, head_dim=96, ffn=24576, vocab=50432, positions=2048, norm_eps=1e-5, activation="gelu",
     attention_bias=True, parallel_block=True, turned=24, tied=False, rope_theta=10000.0, rope_rule=["none"], init_std=0.02)

turns = rope(rope_rule, rope_theta, turned)
x = tokens(vocab, width, name="gpt_neox.embed_in")
stream(x)
for l in range(layers):
    p = f"gpt_neox.layers.{l}."
    h = layer_norm(x, name=p + "input_layernorm", eps=norm_eps)
    q, k, v = fused(h, [width, width, width], ["query", "key", "value"], name=p + "attention.query_key_value", bias=attention_bias, groups=heads)
    q = rotary(q, heads, turns)
    k = rotary(k, heads, turns)
    a = linear(attention(q, k, v, heads), width, name=p + "attention.dense", bias=attention_bias, role="attention_out")
    if not parallel_block:
        x = x + a
    h = layer_norm(x, name=p + "post_attention_layernorm", eps=norm_eps, label="ffn.norm")
    h = function(linear(h, ffn, name=p + "mlp.dense_h_to_4h", bias=True, role="ffn_in"), activation)
    f = linear(h, width, name=p + "mlp.dense_4h_to_h", bias=True, role="ffn_out")
    x = x + a + f if parallel_block else x + f
    stream(x)
x = layer_norm(x, name="gpt_neox.final_layer_norm", eps=norm_eps)
loss(head(x, vocab, name="embed_out", tied="gpt_neox.embed_in.weight" if tied else ""))
