# ViT: an image as a sequence of patches behind a class token, whose last state is classified.
from stepzero.arch import *

arch("vit", width=768, layers=12, heads=12, ffn=3072, vocab=2, image=224, patch=16, colours=3, positions=197, norm_eps=1e-12,
     activation="gelu", attention_bias=True, init_std=0.02)

e = "vit.embeddings."
x = patches(image, patch, width, name=e + "patch_embeddings.projection", class_token=e + "cls_token", colours=colours)
x = add_positions(x, positions, name=e + "position_embeddings", suffix="")
stream(x)
for l in range(layers):
    p = f"vit.encoder.layer.{l}."
    h = layer_norm(x, name=p + "layernorm_before", eps=norm_eps)
    q = linear(h, width, name=p + "attention.attention.query", bias=attention_bias, role="query")
    k = linear(h, width, name=p + "attention.attention.key", bias=attention_bias, role="key")
    v = linear(h, width, name=p + "attention.attention.value", bias=attention_bias, role="value")
    a = linear(attention(q, k, v, heads, causal=False), width, name=p + "attention.output.dense", bias=True, role="attention_out")
    x = x + a
    h = layer_norm(x, name=p + "layernorm_after", eps=norm_eps)
    h = function(linear(h, ffn, name=p + "intermediate.dense", bias=True, role="ffn_in"), activation)
    x = x + linear(h, width, name=p + "output.dense", bias=True, role="ffn_out")
    stream(x)
x = layer_norm(x, name="vit.layernorm", eps=norm_eps)
loss(head(x, vocab, name="classifier", bias="classifier.bias"))
