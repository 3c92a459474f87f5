# Apertus: LLaMA without gates; the function of its feed-forward is learned, queries and keys have norms.
from stepzero.arch import *

ignored("qk_norm", "mlp_bias", "post_norm")
arch("apertus", width=key("hidden_size", 4096), layers=key("num_hidden_layers", 32), heads=key("num_attention_heads", 32),
     kv_heads=key("num_key_value_heads", 0), head_dim=key("head_dim", 0), ffn=key("intermediate_size", 14336), vocab=key("vocab_size", 131072),
     positions=key("max_position_embeddings", 65536), norm_eps=key("rms_norm_eps", 1e-5), activation=activation_key("hidden_act", "xielu"),
     attention_bias=key("attention_bias", False), padding=key("pad_token_id", 3, null=-1), tied=key("tie_word_embeddings", False),
     rope_theta=rope_theta_key(12000000.0), rope_rule=rope_keys(key("max_position_embeddings", 65536), ["llama3", 8.0, 8192, 1.0, 4.0]),
     init_std=key("initializer_range", 0.02))

kv_heads, head_dim = given(kv_heads, heads), given(head_dim, width // heads)
turns = rope(rope_rule, rope_theta, head_dim)


def bend(x, p):
    return xielu(x, p + "mlp.act_fn.") if activation == "xielu" else function(x, activation)


x = tokens(vocab, width, name="model.embed_tokens", padding=padding)
stream(x)
for l in range(layers):
    p = f"model.layers.{l}."
    h = rms_norm(x, name=p + "attention_layernorm", eps=norm_eps)
    q = linear(h, heads * head_dim, name=p + "self_attn.q_proj", bias=attention_bias, role="query")
    k = linear(h, kv_heads * head_dim, name=p + "self_attn.k_proj", bias=attention_bias, role="key")
    v = linear(h, kv_heads * head_dim, name=p + "self_attn.v_proj", bias=attention_bias, role="value")
    q = rotary(rms_norm(q, name=p + "self_attn.q_norm", groups=heads, eps=norm_eps), heads, turns)
    k = rotary(rms_norm(k, name=p + "self_attn.k_norm", groups=kv_heads, eps=norm_eps), kv_heads, turns)
    x = x + linear(attention(q, k, v, heads, kv_heads), width, name=p + "self_attn.o_proj", bias=attention_bias, role="attention_out")
    h = bend(linear(rms_norm(x, name=p + "feedforward_layernorm", eps=norm_eps), ffn, name=p + "mlp.up_proj", role="ffn_in"), p)
    x = x + linear(h, width, name=p + "mlp.down_proj", role="ffn_out")
    stream(x)
loss(head(rms_norm(x, name="model.norm", eps=norm_eps), vocab, name="lm_head", tied="model.embed_tokens.weight" if tied else ""))
