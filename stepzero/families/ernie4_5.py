# ERNIE 4.5: LLaMA that turns neighbouring channels.
from stepzero.arch import *

arch("ernie4_5", width=key("hidden_size", 1024), layers=key("num_hidden_layers", 18), heads=key("num_attention_heads", 16),
     kv_heads=key("num_key_value_heads", 2, null=0), head_dim=key("head_dim", 128, null=0), ffn=key("intermediate_size", 3072),
     vocab=key("vocab_size", 103424), positions=key("max_position_embeddings", 131072), norm_eps=key("rms_norm_eps", 1e-5),
     activation=activation_key("hidden_act", "silu"), bias=key("use_bias", False), padding=key("pad_token_id", 0, null=-1),
     tied=key("tie_word_embeddings", True), rope_theta=rope_theta_key(500000.0), rope_rule=rope_keys(key("max_position_embeddings", 131072)),
     init_std=key("initializer_range", 0.02))

kv_heads, head_dim = given(kv_heads, heads), given(head_dim, width // heads)
turns = rope(rope_rule, rope_theta, head_dim)
x = tokens(vocab, width, name="model.embed_tokens", padding=padding)
stream(x)
for l in range(layers):
    p = f"model.layers.{l}."
    h = rms_norm(x, name=p + "input_layernorm", eps=norm_eps)
    q = linear(h, heads * head_dim, name=p + "self_attn.q_proj", bias=bias, role="query")
    k = linear(h, kv_heads * head_dim, name=p + "self_attn.k_proj", bias=bias, role="key")
    v = linear(h, kv_heads * head_dim, name=p + "self_attn.v_proj", bias=bias, role="value")
    m = attention(rotary(q, heads, turns, interleaved=True), rotary(k, kv_heads, turns, interleaved=True), v, heads, kv_heads)
    x = x + linear(m, width, name=p + "self_attn.o_proj", bias=bias, role="attention_out")
    h = rms_norm(x, name=p + "post_attention_layernorm", eps=norm_eps)
    x = x + swiglu(h, ffn, gate=p + "mlp.gate_proj", up=p + "mlp.up_proj", down=p + "mlp.down_proj", act=activation, bias=bias)
    stream(x)
loss(head(rms_norm(x, name="model.norm", eps=norm_eps), vocab, name="lm_head", tied="model.embed_tokens.weight" if tied else ""))
