# SigLIP's tower of images: no class token; the mean of the patches, or what one learned query gathers from them.
from stepzero.arch import *

arch("siglip_vision_model", kind=key("architectures", ["SiglipVisionModel"]), width=key("hidden_size", 768), layers=key("num_hidden_layers", 12),
     heads=key("num_attention_heads", 12), ffn=key("intermediate_size", 3072), classes=count_key("id2label", key("num_labels", 2)),
     image=key("image_size", 224), patch=key("patch_size", 16), colours=key("num_channels", 3), norm_eps=key("layer_norm_eps", 1e-6),
     activation=activation_key("hidden_act", "gelu_tanh"), uses_head=key("vision_use_head", True), factor=key("initializer_factor", 1.0))


def xavier(inputs, outputs):
    return uniform(sqrt(6.0 / (inputs + outputs)))


def feed_forward(x, p):
    near_zero = normal(1e-6)
    h = linear(x, ffn, name=p + "fc1", bias=True, role="ffn_in", init=xavier(width, ffn), bias_init=near_zero)
    return linear(function(h, activation), width, name=p + "fc2", bias=True, role="ffn_out", init=xavier(ffn, width), bias_init=near_zero)


places = (image // patch) * (image // patch)
e = "vision_model.embeddings."
lecun = truncated((colours * patch * patch) ** -0.5 / 0.87962566103423978)
x = patches(image, patch, width, name=e + "patch_embedding", colours=colours, init=lecun)
x = add_positions(x, places, name=e + "position_embedding", init=normal(width ** -0.5))
stream(x)
for l in range(layers):
    p = f"vision_model.encoder.layers.{l}."
    h = layer_norm(x, name=p + "layer_norm1", eps=norm_eps)
    q = linear(h, width, name=p + "self_attn.q_proj", bias=True, role="query", init=xavier(width, width))
    k = linear(h, width, name=p + "self_attn.k_proj", bias=True, role="key", init=xavier(width, width))
    v = linear(h, width, name=p + "self_attn.v_proj", bias=True, role="value", init=xavier(width, width))
    m = attention(q, k, v, heads, causal=False)
    x = x + linear(m, width, name=p + "self_attn.out_proj", bias=True, role="attention_out", init=xavier(width, width))
    x = x + feed_forward(layer_norm(x, name=p + "layer_norm2", eps=norm_eps), p + "mlp.")
    stream(x)
branch("head")
t = "vision_model.head."
classifies = kind[0] == "SiglipForImageClassification"
x = layer_norm(x, name="vision_model.post_layernorm", eps=norm_eps)
if classifies:
    if uses_head:
        for name, shape, role, law in [["probe", [1, 1, width], "position_embedding", xavier(width, width)],
                                       ["attention.in_proj_weight", [3 * width, width], "projection", xavier(width, 3 * width)],
                                       ["attention.in_proj_bias", [3 * width], "bias", zeros],
                                       ["attention.out_proj.weight", [width, width], "projection", xavier(width, width)],
                                       ["attention.out_proj.bias", [width], "bias", zeros], ["layernorm.weight", [width], "gain", constant(1.0)],
                                       ["layernorm.bias", [width], "bias", zeros], ["mlp.fc1.weight", [ffn, width], "projection", xavier(width, ffn)],
                                       ["mlp.fc1.bias", [ffn], "bias", normal(1e-6)], ["mlp.fc2.weight", [width, ffn], "projection", xavier(ffn, width)],
                                       ["mlp.fc2.bias", [width], "bias", normal(1e-6)]]:
            unused(t + name, shape, role, law)
    loss(head(pool(x, "mean"), classes, name="classifier", bias="classifier.bias", init=normal(width ** -0.5 * factor)))
else:
    if not uses_head:
        fail("vision_use_head: without a head there is nothing to score", "SiglipForImageClassification has a classifier")
    branch("pooling")
    w = probe(width, name=t + "probe", init=xavier(width, width))
    q, k, v = fused_apart(w, x, t + "attention.in_proj_weight", t + "attention.in_proj_bias", init=xavier(width, 3 * width))
    y = linear(attention(q, k, v, heads, cross=True), width, name=t + "attention.out_proj", bias=True, init=xavier(width, width))
    f = feed_forward(layer_norm(y, name=t + "layernorm", eps=norm_eps), t + "mlp.")
    loss(as_logits(add(y, f, label="pooling.sum")))
