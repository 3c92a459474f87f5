# Arcee (AFM): LLaMA with a feed-forward of squared ReLU and no gate.
from stepzero.arch import *

arch("arcee", width=key("hidden_size", 2560), layers=key("num_hidden_layers", 32), heads=key("num_attention_heads", 32),
     kv_heads=key("num_key_value_heads", 0), head_dim=key("head_dim", 0), ffn=key("intermediate_size", 18432), vocab=key("vocab_size", 32000),
     positions=key("max_position_embeddings", 4096), norm_eps=key("rms_norm_eps", 1e-5), activation=activation_key("hidden_act", "relu2"),
     attention_bias=key("attention_bias", False), mlp_bias=key("mlp_bias", False), padding=key("pad_token_id", -1),
     tied=key("tie_word_embeddings", False), rope_theta=rope_theta_key(10000.0), rope_rule=rope_keys(key("max_position_embeddings", 4096)),
     init_std=key("initializer_range", 0.02))

kv_heads, head_dim = given(kv_heads, heads), given(head_dim, width // heads)
turns = rope(rope_rule, rope_theta, head_dim)
x = tokens(vocab, width, name="model.embed_tokens", padding=padding)
stream(x)
for l in range(layers):
    p = f"model.layers.{l}."
    h = rms_norm(x, name=p + "input_layernorm", eps=norm_eps)
    q = linear(h, heads * head_dim, name=p + "self_attn.q_proj", bias=attention_bias, role="query")
    k = linear(h, kv_heads * head_dim, name=p + "self_attn.k_proj", bias=attention_bias, role="key")
    v = linear(h, kv_heads * head_dim, name=p + "self_attn.v_proj", bias=attention_bias, role="value")
    m = attention(rotary(q, heads, turns), rotary(k, kv_heads, turns), v, heads, kv_heads)
    x = x + linear(m, width, name=p + "self_attn.o_proj", bias=attention_bias, role="attention_out")
    h = rms_norm(x, name=p + "post_attention_layernorm", eps=norm_eps)
    h = function(linear(h, ffn, name=p + "mlp.up_proj", bias=mlp_bias, role="ffn_in"), activation)
    x = x + linear(h, width, name=p + "mlp.down_proj", bias=mlp_bias, role="ffn_out")
    stream(x)
loss(head(rms_norm(x, name="model.norm", eps=norm_eps), vocab, name="lm_head", tied="model.embed_tokens.weight" if tied else ""))
