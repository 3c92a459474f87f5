# SigLIP's tower of texts: attention to both sides; the last token stands for all.
from stepzero.arch import *

ignored("architectures")
arch("siglip_text_model", width=key("hidden_size", 768), layers=key("num_hidden_layers", 12), heads=key("num_attention_heads", 12),
     ffn=key("intermediate_size", 3072), vocab=key("vocab_size", 32000), positions=key("max_position_embeddings", 64),
     projection=key("projection_size", 0, null=0), norm_eps=key("layer_norm_eps", 1e-6), activation=activation_key("hidden_act", "gelu_tanh"))


def xavier(inputs, outputs):
    return uniform(sqrt(6.0 / (inputs + outputs)))


projection = given(projection, width)
lecun = truncated(width ** -0.5 / 0.87962566103423978)
e = "text_model.embeddings."
x = tokens(vocab, width, name=e + "token_embedding", init=normal(width ** -0.5))
x = add_positions(x, positions, name=e + "position_embedding", init=normal(width ** -0.5))
stream(x)
for l in range(layers):
    p = f"text_model.encoder.layers.{l}."
    h = layer_norm(x, name=p + "layer_norm1", eps=norm_eps)
    q = linear(h, width, name=p + "self_attn.q_proj", bias=True, role="query", init=xavier(width, width))
    k = linear(h, width, name=p + "self_attn.k_proj", bias=True, role="key", init=xavier(width, width))
    v = linear(h, width, name=p + "self_attn.v_proj", bias=True, role="value", init=xavier(width, width))
    m = attention(q, k, v, heads, causal=False)
    x = x + linear(m, width, name=p + "self_attn.out_proj", bias=True, role="attention_out", init=xavier(width, width))
    h = layer_norm(x, name=p + "layer_norm2", eps=norm_eps)
    h = linear(h, ffn, name=p + "mlp.fc1", bias=True, role="ffn_in", init=xavier(width, ffn), bias_init=normal(1e-6))
    h = linear(function(h, activation), width, name=p + "mlp.fc2", bias=True, role="ffn_out", init=xavier(ffn, width), bias_init=normal(1e-6))
    x = x + h
    stream(x)
branch("head")
x = layer_norm(x, name="text_model.final_layer_norm", eps=norm_eps)
loss(head(pool(x, "last"), projection, name="text_model.head", bias="text_model.head.bias", init=lecun))
