# ALBERT: BERT whose layers use the weights of a few, behind embeddings narrower than the blocks.
from stepzero.arch import *

ignored("down_scale_factor", "gap_size", "net_structure_type", "num_memory_blocks")
arch("albert", embedding_width=key("embedding_size", 128), width=key("hidden_size", 4096), layers=key("num_hidden_layers", 12),
     groups=key("num_hidden_groups", 1), inner=key("inner_group_num", 1), heads=key("num_attention_heads", 64), ffn=key("intermediate_size", 16384),
     vocab=key("vocab_size", 30000), positions=key("max_position_embeddings", 512), token_types=key("type_vocab_size", 2),
     norm_eps=key("layer_norm_eps", 1e-12), activation=activation_key("hidden_act", "gelu_tanh"),
     position_kind=key("position_embedding_type", "absolute"), padding=key("pad_token_id", 0, null=-1), tied=key("tie_word_embeddings", True),
     init_std=key("initializer_range", 0.02))

if position_kind != "absolute":
    fail("position_embedding_type: only \"absolute\" is read")
if layers % groups != 0:
    fail(f"num_hidden_groups={groups} does not divide num_hidden_layers={layers}")
share_weights()
e = "albert.embeddings."
x = tokens(vocab, embedding_width, name=e + "word_embeddings", padding=padding)
x = add_types(x, token_types, name=e + "token_type_embeddings")
x = add_positions(x, positions, name=e + "position_embeddings")
x = layer_norm(x, name=e + "LayerNorm", eps=norm_eps, label="norm")
x = linear(x, width, name="albert.encoder.embedding_hidden_mapping_in", bias=True, label="project")
stream(x)
for l in range(layers):
    for k in range(inner):
        p = f"albert.encoder.albert_layer_groups.{l * groups // layers}.albert_layers.{k}."
        q = linear(x, width, name=p + "attention.query", bias=True, role="query")
        h = linear(x, width, name=p + "attention.key", bias=True, role="key")
        v = linear(x, width, name=p + "attention.value", bias=True, role="value")
        a = linear(attention(q, h, v, heads, causal=False), width, name=p + "attention.dense", bias=True, role="attention_out")
        x = layer_norm(add(x, a, label="attn.sum"), name=p + "attention.LayerNorm", eps=norm_eps, label="mid")
        h = function(linear(x, ffn, name=p + "ffn", bias=True, role="ffn_in"), activation)
        f = linear(h, width, name=p + "ffn_output", bias=True, role="ffn_out")
        x = layer_norm(add(x, f, label="ffn.sum"), name=p + "full_layer_layer_norm", eps=norm_eps)
    stream(x)
branch("head")
x = function(linear(x, embedding_width, name="predictions.dense", bias=True, label="dense"), activation)
x = layer_norm(x, name="predictions.LayerNorm", eps=norm_eps)
loss(head(x, vocab, name="predictions.decoder", tied=e + "word_embeddings.weight" if tied else "", bias="predictions.bias"))
