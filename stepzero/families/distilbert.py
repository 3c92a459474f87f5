# DistilBERT: BERT without token types, with tensors of its own names.
from stepzero.arch import *

arch("distilbert", width=key("dim", 768, also=["hidden_size"]), layers=key("n_layers", 6, also=["num_hidden_layers"]),
     heads=key("n_heads", 12, also=["num_attention_heads"]), ffn=key("hidden_dim", 3072), vocab=key("vocab_size", 30522),
     positions=key("max_position_embeddings", 512), activation=activation_key("activation", "gelu"),
     sinusoidal=key("sinusoidal_pos_embds", False), padding=key("pad_token_id", 0, null=-1), tied=key("tie_word_embeddings", True),
     init_std=key("initializer_range", 0.02))


def norm(x, name, label=""):
    return layer_norm(x, name=name, eps=1e-12, label=label)


e = "distilbert.embeddings."
x = tokens(vocab, width, name=e + "word_embeddings", padding=padding)
x = add_positions(x, positions, name=e + "position_embeddings", init=waves(positions, width, halves=False) if sinusoidal else None, frozen=sinusoidal)
x = norm(x, e + "LayerNorm", label="norm")
stream(x)
for l in range(layers):
    p = f"distilbert.transformer.layer.{l}."
    q = linear(x, width, name=p + "attention.q_lin", bias=True, role="query")
    k = linear(x, width, name=p + "attention.k_lin", bias=True, role="key")
    v = linear(x, width, name=p + "attention.v_lin", bias=True, role="value")
    a = linear(attention(q, k, v, heads, causal=False), width, name=p + "attention.out_lin", bias=True, role="attention_out")
    x = norm(add(x, a, label="attn.sum"), p + "sa_layer_norm", label="mid")
    h = function(linear(x, ffn, name=p + "ffn.lin1", bias=True, role="ffn_in"), activation)
    f = linear(h, width, name=p + "ffn.lin2", bias=True, role="ffn_out")
    x = norm(add(x, f, label="ffn.sum"), p + "output_layer_norm")
    stream(x)
branch("head")
x = function(linear(x, width, name="vocab_transform", bias=True, label="dense"), activation)
x = norm(x, "vocab_layer_norm")
loss(head(x, vocab, name="vocab_projector", tied=e + "word_embeddings.weight" if tied else "", bias="vocab_projector.bias"))
