# BERT: a norm after each sum, positions and token types, and a head with a matrix of its own before the words.
from stepzero.arch import *

arch("bert", width=768, layers=12, heads=12, ffn=3072, vocab=30522, positions=512, token_types=2, padding=0, norm_eps=1e-12,
     activation="gelu", causal=False, tied=True, init_std=0.02)

e = "bert.embeddings."
x = tokens(vocab, width, name=e + "word_embeddings", padding=padding)
x = add_types(x, token_types, name=e + "token_type_embeddings")
x = add_positions(x, positions, name=e + "position_embeddings")
x = layer_norm(x, name=e + "LayerNorm", eps=norm_eps, label="norm")
stream(x)
for l in range(layers):
    p = f"bert.encoder.layer.{l}."
    q = linear(x, width, name=p + "attention.self.query", bias=True, role="query")
    k = linear(x, width, name=p + "attention.self.key", bias=True, role="key")
    v = linear(x, width, name=p + "attention.self.value", bias=True, role="value")
    a = linear(attention(q, k, v, heads, causal=causal), width, name=p + "attention.output.dense", bias=True, role="attention_out")
    x = layer_norm(add(x, a, label="attn.sum"), name=p + "attention.output.LayerNorm", eps=norm_eps, label="mid")
    h = function(linear(x, ffn, name=p + "intermediate.dense", bias=True, role="ffn_in"), activation)
    f = linear(h, width, name=p + "output.dense", bias=True, role="ffn_out")
    x = layer_norm(add(x, f, label="ffn.sum"), name=p + "output.LayerNorm", eps=norm_eps)
    stream(x)
branch("head")
x = function(linear(x, width, name="cls.predictions.transform.dense", bias=True, label="dense"), activation)
x = layer_norm(x, name="cls.predictions.transform.LayerNorm", eps=norm_eps)
loss(head(x, vocab, name="cls.predictions.decoder", tied=e + "word_embeddings.weight" if tied else "", bias="cls.predictions.bias"))
