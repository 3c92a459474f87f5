# RoBERTa: BERT with positions that skip padding, and a head of its own names.
from stepzero.arch import *

arch("roberta", width=768, layers=12, heads=12, ffn=3072, vocab=50265, positions=512, token_types=2, padding=1, position_offset=2,
     norm_eps=1e-12, activation="gelu", causal=False, tied=True, init_std=0.02)

e = "roberta.embeddings."
x = tokens(vocab, width, name=e + "word_embeddings", padding=padding)
x = add_types(x, token_types, name=e + "token_type_embeddings")
x = add_positions(x, positions, name=e + "position_embeddings", offset=position_offset, padding=padding)
x = layer_norm(x, name=e + "LayerNorm", eps=norm_eps, label="norm")
stream(x)
for l in range(layers):
    p = f"roberta.encoder.layer.{l}."
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
x = function(linear(x, width, name="lm_head.dense", bias=True, label="dense"), "gelu")
x = layer_norm(x, name="lm_head.layer_norm", eps=norm_eps)
loss(head(x, vocab, name="lm_head.decoder", tied=e + "word_embeddings.weight" if tied else "", bias="lm_head.bias"))
