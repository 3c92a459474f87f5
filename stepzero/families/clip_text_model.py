# CLIP's tower of texts: a causal transformer whose last token, the first end of the text, stands for all.
from stepzero.arch import *

arch("clip_text_model", kind=key("architectures", ["CLIPTextModelWithProjection"]), width=key("hidden_size", 512),
     layers=key("num_hidden_layers", 12), heads=key("num_attention_heads", 8), ffn=key("intermediate_size", 2048), vocab=key("vocab_size", 49408),
     positions=key("max_position_embeddings", 77), projection=key("projection_dim", 512), norm_eps=key("layer_norm_eps", 1e-5),
     activation=activation_key("hidden_act", "quick_gelu"), end=key("eos_token_id", 49407), factor=key("initializer_factor", 1.0))

by_width = factor * width ** -0.5
by_depth = by_width * (2 * layers) ** -0.5
e = "text_model.embeddings."
x = tokens(vocab, width, name=e + "token_embedding", init=normal(0.02 * factor))
x = add_positions(x, positions, name=e + "position_embedding", init=normal(0.02 * factor))
stream(x)
for l in range(layers):
    p = f"text_model.encoder.layers.{l}."
    h = layer_norm(x, name=p + "layer_norm1", eps=norm_eps)
    q = linear(h, width, name=p + "self_attn.q_proj", bias=True, role="query", init=normal(by_depth))
    k = linear(h, width, name=p + "self_attn.k_proj", bias=True, role="key", init=normal(by_depth))
    v = linear(h, width, name=p + "self_attn.v_proj", bias=True, role="value", init=normal(by_depth))
    m = attention(q, k, v, heads)
    x = x + linear(m, width, name=p + "self_attn.out_proj", bias=True, role="attention_out", init=normal(by_width))
    h = layer_norm(x, name=p + "layer_norm2", eps=norm_eps)
    h = function(linear(h, ffn, name=p + "mlp.fc1", bias=True, role="ffn_in", init=normal(factor * (2 * width) ** -0.5)), activation)
    x = x + linear(h, width, name=p + "mlp.fc2", bias=True, role="ffn_out", init=normal(by_depth))
    stream(x)
branch("head")
x = layer_norm(x, name="text_model.final_layer_norm", eps=norm_eps)
x = pool(x, "largest") if end == 2 else pool(x, "id", end)  # 2: as the first files meant it
projects = kind[0] == "CLIPTextModelWithProjection"
loss(head(x, projection, name="text_projection", init=normal(by_width)) if projects else as_logits(x))
