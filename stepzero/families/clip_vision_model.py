# CLIP's tower of images: a norm before the first block, the mean of the patches or the class token at the end.
from stepzero.arch import *

arch("clip_vision_model", kind=key("architectures", ["CLIPVisionModelWithProjection"]), width=key("hidden_size", 768),
     layers=key("num_hidden_layers", 12), heads=key("num_attention_heads", 12), ffn=key("intermediate_size", 3072),
     projection=key("projection_dim", 512), classes=count_key("id2label", key("num_labels", 2)), image=key("image_size", 224),
     patch=key("patch_size", 32), colours=key("num_channels", 3), norm_eps=key("layer_norm_eps", 1e-5),
     activation=activation_key("hidden_act", "quick_gelu"), factor=key("initializer_factor", 1.0), init_std=key("initializer_range", 0.02))

by_width = factor * width ** -0.5
by_depth = by_width * (2 * layers) ** -0.5
places = (image // patch) * (image // patch) + 1
e = "vision_model.embeddings."
x = patches(image, patch, width, name=e + "patch_embedding", class_token=e + "class_embedding", colours=colours, bias=False, flat=True,
            init=normal(factor * init_std), class_init=normal(by_width))
x = add_positions(x, places, name=e + "position_embedding", init=normal(factor * init_std))
x = layer_norm(x, name="vision_model.pre_layrnorm", eps=norm_eps, label="norm")
stream(x)
for l in range(layers):
    p = f"vision_model.encoder.layers.{l}."
    h = layer_norm(x, name=p + "layer_norm1", eps=norm_eps)
    q = linear(h, width, name=p + "self_attn.q_proj", bias=True, role="query", init=normal(by_depth))
    k = linear(h, width, name=p + "self_attn.k_proj", bias=True, role="key", init=normal(by_depth))
    v = linear(h, width, name=p + "self_attn.v_proj", bias=True, role="value", init=normal(by_depth))
    m = attention(q, k, v, heads, causal=False)
    x = x + linear(m, width, name=p + "self_attn.out_proj", bias=True, role="attention_out", init=normal(by_width))
    h = layer_norm(x, name=p + "layer_norm2", eps=norm_eps)
    h = function(linear(h, ffn, name=p + "mlp.fc1", bias=True, role="ffn_in", init=normal(factor * (2 * width) ** -0.5)), activation)
    x = x + linear(h, width, name=p + "mlp.fc2", bias=True, role="ffn_out", init=normal(by_depth))
    stream(x)
branch("head")
if kind[0] == "CLIPForImageClassification":
    unused("vision_model.post_layernorm.weight", [width], init=constant(1.0))
    unused("vision_model.post_layernorm.bias", [width], role="bias", init=zeros)
    loss(head(pool(x, "rest"), classes, name="classifier", bias="classifier.bias", init=normal(by_width)))
else:
    x = layer_norm(pool(x, "first"), name="vision_model.post_layernorm", eps=norm_eps)
    projects = kind[0] == "CLIPVisionModelWithProjection"
    loss(head(x, projection, name="visual_projection", init=normal(by_width)) if projects else as_logits(x))
