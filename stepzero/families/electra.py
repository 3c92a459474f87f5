# ELECTRA's generator: BERT with embeddings narrower than its blocks, to whose width the head returns.
from stepzero.arch import *

arch("electra", width=key("hidden_size", 256), embedding_width=key("embedding_size", 128), layers=key("num_hidden_layers", 12),
     heads=key("num_attention_heads", 4), ffn=key("intermediate_size", 1024), vocab=key("vocab_size", 30522),
     positions=key("max_position_embeddings", 512), token_types=key("type_vocab_size", 2), norm_eps=key("layer_norm_eps", 1e-12),
     activation=activation_key("hidden_act", "gelu"), position_kind=key("position_embedding_type", "absolute"),
     padding=key("pad_token_id", 0, null=-1), tied=key("tie_word_embeddings", True), init_std=key("initializer_range", 0.02))

if position_kind != "absolute":
    fail("position_embedding_type: only \"absolute\" is read")
e = "electra.embeddings."
x = tokens(vocab, embedding_width, name=e + "word_embeddings", padding=padding)
x = add_types(x, token_types, name=e + "token_type_embeddings")
x = add_positions(x, positions, name=e + "position_embeddings")
x = layer_norm(x, name=e + "LayerNorm", eps=norm_eps, label="norm")
if embedding_width != width:
    x = linear(x, width, name="electra.embeddings_project", bias=True, label="project")
stream(x)
for l in range(layers):
    p = f"electra.encoder.layer.{l}."
    q = linear(x, width, name=p + "attention.self.query", bias=True, role="query")
    k = linear(x, width, name=p + "attention.self.key", bias=True, role="key")
    v = linear(x, width, name=p + "attention.self.value", bias=True, role="value")
    a = linear(attention(q, k, v, heads, causal=False), width, name=p + "attention.output.dense", bias=True, role="attention_out")
    x = layer_norm(add(x, a, label="attn.sum"), name=p + "attention.output.LayerNorm", eps=norm_eps, label="mid")
    h = function(linear(x, ffn, name=p + "intermediate.dense", bias=True, role="ffn_in"), activation)
    f = linear(h, width, name=p + "output.dense", bias=True, role="ffn_out")
    x = layer_norm(add(x, f, label="ffn.sum"), name=p + "output.LayerNorm", eps=norm_eps)
    stream(x)
branch("head")
x = gelu(linear(x, embedding_width, name="generator_predictions.dense", bias=True, label="dense"))
x = layer_norm(x, name="generator_predictions.LayerNorm", eps=norm_eps)
loss(head(x, vocab, name="generator_lm_head", tied=e + "word_embeddings.weight" if tied else "", bias="generator_lm_head.bias"))
