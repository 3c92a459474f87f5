# BLOOM: a norm of the embeddings, linear biases on the scores, one matrix for queries, keys and values head by head.
from stepzero.arch import *

arch("bloom", width=1024, layers=24, heads=16, ffn=4096, vocab=250880, positions=2048, norm_eps=1e-5, alibi=1.0, residual_from_norm=False, tied=True, init_std=0.02)

x = tokens(vocab, width, name="transformer.word_embeddings")
x = layer_norm(x, name="transformer.word_embeddings_layernorm", eps=norm_eps)
stream(x)
for l in range(layers):
    p = f"transformer.h.{l}."
    h = layer_norm(x, name=p + "input_layernorm", eps=norm_eps)
    q, k, v = fused(h, [width, width, width], ["query", "key", "value"], name=p + "self_attention.query_key_value", bias=True, groups=heads)
    m = attention(q, k, v, heads, alibi=alibi_slopes(heads, alibi))
    a = linear(m, width, name=p + "self_attention.dense", bias=True, role="attention_out")
    x = add(h if residual_from_norm else x, a, label="mid")
    h = layer_norm(x, name=p + "post_attention_layernorm", eps=norm_eps)
    f = gelu_tanh(linear(h, ffn, name=p + "mlp.dense_h_to_4h", bias=True, role="ffn_in"))
    f = linear(f, width, name=p + "mlp.dense_4h_to_h", bias=True, role="ffn_out")
    x = add(h if residual_from_norm else x, f, label="mid")
    stream(x)
x = layer_norm(x, name="transformer.ln_f", eps=norm_eps)
loss(head(x, vocab, name="lm_head", tied="transformer.word_embeddings.weight" if tied else ""))
