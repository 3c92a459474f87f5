# Nemotron: LayerNorms whose stored gain is gain - 1, squared ReLU without a gate, half of a head's channels turn.
from stepzero.arch import *

arch("nemotron", width=key("hidden_size", 6144), layers=key("num_hidden_layers", 32), heads=key("num_attention_heads", 48),
     kv_heads=key("num_key_value_heads", 0), head_dim=key("head_dim", 0), ffn=key("intermediate_size", 24576), vocab=key("vocab_size", 256000),
     positions=key("max_position_embeddings", 4096), norm_eps=key("norm_eps", 1e-5), activation=activation_key("hidden_act", "relu2"),
     attention_bias=key("attention_bias", False), mlp_bias=key("mlp_bias", False), turned_part=turned_part_key(0.5),
     padding=key("pad_token_id", -1), tied=key("tie_word_embeddings", False), rope_theta=rope_theta_key(10000.0),
     rope_rule=rope_keys(key("max_position_embeddings", 4096)), init_std=key("initializer_range", 0.0134))

kv_heads, head_dim = given(kv_heads, heads), given(head_dim, width // heads)
turns = rope(rope_rule, rope_theta, int(head_dim * turned_part))


def norm(x, name):
    # the class begins with a stored gain of 1, which makes the gain 2
    return layer_norm(x, name=name, eps=norm_eps, offset=True, init=constant(1.0))


x = tokens(vocab, width, name="model.embed_tokens", padding=padding)
stream(x)
for l in range(layers):
    p = f"model.layers.{l}."
    h = norm(x, p + "input_layernorm")
    q = linear(h, heads * head_dim, name=p + "self_attn.q_proj", bias=attention_bias, role="query")
    k = linear(h, kv_heads * head_dim, name=p + "self_attn.k_proj", bias=attention_bias, role="key")
    v = linear(h, kv_heads * head_dim, name=p + "self_attn.v_proj", bias=attention_bias, role="value")
    m = attention(rotary(q, heads, turns), rotary(k, kv_heads, turns), v, heads, kv_heads)
    x = x + linear(m, width, name=p + "self_attn.o_proj", bias=attention_bias, role="attention_out")
    h = norm(x, p + "post_attention_layernorm")
    h = function(linear(h, ffn, name=p + "mlp.up_proj", bias=mlp_bias, role="ffn_in"), activation)
    x = x + linear(h, width, name=p + "mlp.down_proj", bias=mlp_bias, role="ffn_out")
    stream(x)
loss(head(norm(x, "model.norm"), vocab, name="lm_head", tied="model.embed_tokens.weight" if tied else ""))
