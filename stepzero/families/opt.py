# OPT: GPT with two rows before the first position; the smallest but one has norms after the sums and narrower embeddings.
from stepzero.arch import *

arch("opt", width=768, layers=12, heads=12, ffn=3072, vocab=50272, positions=2048, position_offset=2, embedding_width=768, norm_eps=1e-5,
     norm_gain=True, norm_placement="pre", final_norm=True, activation="relu", attention_bias=True, padding=1, tied=True, init_std=0.02)

def norm(x, name, label=""):
    return layer_norm(x, name=name, gain=norm_gain, bias=norm_gain, eps=norm_eps, label=label)

pre = norm_placement == "pre"
x = tokens(vocab, embedding_width, name="model.decoder.embed_tokens", padding=padding)
if embedding_width != width:
    x = linear(x, width, name="model.decoder.project_in", label="in")
x = add_positions(x, positions, name="model.decoder.embed_positions", offset=position_offset)
stream(x)
for l in range(layers):
    p = f"model.decoder.layers.{l}."
    h = norm(x, p + "self_attn_layer_norm") if pre else x
    q = linear(h, width, name=p + "self_attn.q_proj", bias=attention_bias, role="query")
    k = linear(h, width, name=p + "self_attn.k_proj", bias=attention_bias, role="key")
    v = linear(h, width, name=p + "self_attn.v_proj", bias=attention_bias, role="value")
    a = linear(attention(q, k, v, heads), width, name=p + "self_attn.out_proj", bias=attention_bias, role="attention_out")
    x = x + a if pre else norm(add(x, a, label="attn.sum"), p + "self_attn_layer_norm", label="mid")
    h = norm(x, p + "final_layer_norm") if pre else x
    h = function(linear(h, ffn, name=p + "fc1", bias=attention_bias, role="ffn_in"), activation)
    f = linear(h, width, name=p + "fc2", bias=attention_bias, role="ffn_out")
    x = x + f if pre else norm(add(x, f, label="ffn.sum"), p + "final_layer_norm")
    stream(x)
if pre and final_norm:
    branch("final")
    x = norm(x, "model.decoder.final_layer_norm")
branch("head")
if embedding_width != width:
    x = linear(x, embedding_width, name="model.decoder.project_out", label="out")
loss(head(x, vocab, name="lm_head", tied="model.decoder.embed_tokens.weight" if tied else ""))
