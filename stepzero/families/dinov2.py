# DINOv2: ViT with a learned gain on every branch; the class token and the mean of the patches are classified together.
from stepzero.arch import *

ignored("apply_layernorm", "reshape_hidden_states", "out_features", "out_indices", "stage_names", "drop_path_rate", "architectures")
arch("dinov2", width=key("hidden_size", 768), layers=key("num_hidden_layers", 12), heads=key("num_attention_heads", 12),
     mlp_ratio=key("mlp_ratio", 4.0), swiglu_ffn=key("use_swiglu_ffn", False), classes=count_key("id2label", key("num_labels", 2)),
     image=key("image_size", 224), patch=key("patch_size", 14), colours=key("num_channels", 3), norm_eps=key("layer_norm_eps", 1e-6),
     activation=activation_key("hidden_act", "gelu"), attention_bias=key("qkv_bias", True), layer_scale=key("layerscale_value", 1.0),
     mask_token=key("use_mask_token", True), init_std=key("initializer_range", 0.02))

ffn = int(width * mlp_ratio)
if swiglu_ffn:
    ffn = (ffn * 2 // 3 + 7) // 8 * 8
places = (image // patch) * (image // patch) + 1


def feed_forward(x, p):
    if swiglu_ffn:
        g, u = fused(x, [ffn, ffn], ["ffn_gate", "ffn_in"], name=p + "weights_in", bias=True)
        return linear(multiply(silu(g), u), width, name=p + "weights_out", bias=True, role="ffn_out")
    h = function(linear(x, ffn, name=p + "fc1", bias=True, role="ffn_in"), activation)
    return linear(h, width, name=p + "fc2", bias=True, role="ffn_out")


e = "dinov2.embeddings."
x = patches(image, patch, width, name=e + "patch_embeddings.projection", class_token=e + "cls_token", colours=colours)
x = add_positions(x, places, name=e + "position_embeddings", suffix="")
if mask_token:
    unused(e + "mask_token", [1, width], init=zeros)
stream(x)
for l in range(layers):
    p = f"dinov2.encoder.layer.{l}."
    h = layer_norm(x, name=p + "norm1", eps=norm_eps)
    q = linear(h, width, name=p + "attention.attention.query", bias=attention_bias, role="query")
    k = linear(h, width, name=p + "attention.attention.key", bias=attention_bias, role="key")
    v = linear(h, width, name=p + "attention.attention.value", bias=attention_bias, role="value")
    a = linear(attention(q, k, v, heads, causal=False), width, name=p + "attention.output.dense", bias=True, role="attention_out")
    x = x + channel_gain(a, name=p + "layer_scale1.lambda1", value=layer_scale)
    f = feed_forward(layer_norm(x, name=p + "norm2", eps=norm_eps), p + "mlp.")
    x = x + channel_gain(f, name=p + "layer_scale2.lambda1", value=layer_scale)
    stream(x)
branch("head")
x = layer_norm(x, name="dinov2.layernorm", eps=norm_eps)
loss(head(concat(pool(x, "first"), pool(x, "rest")), classes, name="classifier", bias="classifier.bias"))
