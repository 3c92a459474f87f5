# T5: an encoder and a decoder that reads it, biases by distance on the scores, every product drawn with unit gain.
from stepzero.arch import *

arch("t5", width=512, layers=6, decoder_layers=6, heads=8, head_dim=64, ffn=2048, vocab=32128, positions=1024, relative_positions=32, relative_distance=128,
     norm_eps=1e-6, activation="relu", gated=False, logit_scale=1.0, tied=True, init_std=1.0)

def over_root(n):
    return normal(init_std / sqrt(n))

def norm(x, name):
    return rms_norm(x, name=name, eps=norm_eps, init=constant(init_std))

def attend(x, memory, p, table=None, causal=False, cross=False):
    q = linear(x, heads * head_dim, name=p + "q", role="query", init=over_root(width * head_dim))
    k = linear(memory, heads * head_dim, name=p + "k", role="key", init=over_root(width))
    v = linear(memory, heads * head_dim, name=p + "v", role="value", init=over_root(width))
    if table == "new":
        table = distance_table(relative_positions, heads, name=p + "relative_attention_bias", init=over_root(width))
        tables.append(table)
    m = attention(q, k, v, heads, scale=1.0, causal=causal, table=table, farthest=relative_distance, cross=cross)
    return linear(m, width, name=p + "o", role="attention_out", init=over_root(heads * head_dim))

def feed_forward(x, p):
    if gated:
        g = function(linear(x, ffn, name=p + "wi_0", role="ffn_gate", init=over_root(width)), activation)
        h = multiply(g, linear(x, ffn, name=p + "wi_1", role="ffn_in", init=over_root(width)))
    else:
        h = function(linear(x, ffn, name=p + "wi", role="ffn_in", init=over_root(width)), activation)
    return linear(h, width, name=p + "wo", role="ffn_out", init=over_root(ffn))

memory = None
for side, depth in [["encoder", layers], ["decoder", decoder_layers]]:
    stack(side)
    tables = []
    decodes = side == "decoder"
    x = tokens(vocab, width, name="shared", encoder=not decodes, init=normal(init_std))
    stream(x)
    for l in range(depth):
        p = f"{side}.block.{l}.layer."
        h = norm(x, p + "0.layer_norm")
        x = x + attend(h, h, p + "0.SelfAttention.", table="new" if l == 0 else tables[0], causal=decodes)
        if decodes:
            branch("cross")
            x = add(x, attend(norm(x, p + "1.layer_norm"), memory, p + "1.EncDecAttention.", cross=True), label="crossed")
        n = 2 if decodes else 1
        x = x + feed_forward(norm(x, f"{p}{n}.layer_norm"), f"{p}{n}.DenseReluDense.")
        stream(x)
    x = norm(x, f"{side}.final_layer_norm")
    memory = x
loss(head(x, vocab, name="lm_head", tied="shared.weight" if tied else "", scale=logit_scale, init=normal(init_std)))
