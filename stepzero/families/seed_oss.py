# Seed-OSS: LLaMA with biases on queries, keys and values, and dropout on the branches.
from stepzero.arch import *

arch("seed_oss", width=key("hidden_size", 4096), layers=key("num_hidden_layers", 64), heads=key("num_attention_heads", 80),
     kv_heads=key("num_key_value_heads", 8, null=0), head_dim=key("head_dim", 128, null=0), ffn=key("intermediate_size", 27648),
     vocab=key("vocab_size", 155136), positions=key("max_position_embeddings", 524288), norm_eps=key("rms_norm_eps", 1e-6),
     activation=activation_key("hidden_act", "silu"), attention_bias=key("attention_bias", True),
     attention_out_bias=key("attention_out_bias", False), mlp_bias=key("mlp_bias", False), padding=key("pad_token_id", 1, null=-1),
     tied=key("tie_word_embeddings", False), rope_theta=rope_theta_key(10000.0), rope_rule=rope_keys(key("max_position_embeddings", 524288)),
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
    x = x + linear(m, width, name=p + "self_attn.o_proj", bias=attention_out_bias, role="attention_out")
    h = rms_norm(x, name=p + "post_attention_layernorm", eps=norm_eps)
    x = x + swiglu(h, ffn, gate=p + "mlp.gate_proj", up=p + "mlp.up_proj", down=p + "mlp.down_proj", act=activation, bias=mlp_bias)
    stream(x)
loss(head(rms_norm(x, name="model.norm", eps=norm_eps), vocab, name="lm_head", tied="model.embed_tokens.weight" if tied else ""))
