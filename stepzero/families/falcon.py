# Falcon: parallel branches with one norm or two, few key heads; rotary positions, or linear biases where alibi is not 0.
from stepzero.arch import *

arch("falcon", width=4544, layers=32, heads=71, kv_heads=1, head_dim=64, ffn=18176, vocab=65024, positions=2048, norm_eps=1e-5,
     activation="gelu", attention_bias=False, parallel_block=True, shared_norm=True, alibi=0.0, tied=True, rope_theta=10000.0,
     rope_rule=["none"], init_std=0.02)

turns = rope(rope_rule, rope_theta, head_dim)
x = tokens(vocab, width, name="transformer.word_embeddings")
stream(x)
for l in range(layers):
    p = f"transformer.h.{l}."
    two = parallel_block and not shared_norm
    h = layer_norm(x, name=p + ("ln_attn" if two else "input_layernorm"), eps=norm_eps)
    sizes = [heads * head_dim, kv_heads * head_dim, kv_heads * head_dim]
    q, k, v = fused(h, sizes, ["query", "key", "value"], name=p + "self_attention.query_key_value", bias=attention_bias, groups=kv_heads)
    if alibi == 0:
        q = rotary(q, heads, turns)
        k = rotary(k, kv_heads, turns)
    m = attention(q, k, v, heads, kv_heads, alibi=alibi_slopes(heads, alibi) if alibi != 0 else [])
    a = linear(m, width, name=p + "self_attention.dense", bias=attention_bias, role="attention_out")
    if two:
        h = layer_norm(x, name=p + "ln_mlp", eps=norm_eps, label="ffn.norm")
    if not parallel_block:
        x = x + a
        h = layer_norm(x, name=p + "post_attention_layernorm", eps=norm_eps)
    h = function(linear(h, ffn, name=p + "mlp.dense_h_to_4h", bias=attention_bias, role="ffn_in"), activation)
    f = linear(h, width, name=p + "mlp.dense_4h_to_h", bias=attention_bias, role="ffn_out")
    x = x + a + f if parallel_block else x + f
    stream(x)
x = layer_norm(x, name="transformer.ln_f", eps=norm_eps)
loss(head(x, vocab, name="lm_head", tied="transformer.word_embeddings.weight" if tied else ""))
