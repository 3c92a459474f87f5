# GLM-4: norms on both sides of every branch, half of the channels of a head turn, gate and up in one matrix.
from stepzero.arch import *

arch("glm4", width=key("hidden_size", 4096), layers=key("num_hidden_layers", 40), heads=key("num_attention_heads", 32),
     kv_heads=key("num_key_value_heads", 2, null=0), head_dim=key("head_dim", 128, null=0), ffn=key("intermediate_size", 13696),
     vocab=key("vocab_size", 151552), positions=key("max_position_embeddings", 131072), norm_eps=key("rms_norm_eps", 0.00000015625),
     activation=activation_key("hidden_act", "silu"), attention_bias=key("attention_bias", True),
     turned_part=turned_part_key(0.5), padding=key("pad_token_id", 151329, null=-1), tied=key("tie_word_embeddings", False),
     rope_theta=rope_theta_key(10000.0), rope_rule=rope_keys(key("max_position_embeddings", 131072)),
     init_std=key("initializer_range", 0.02))

kv_heads, head_dim = given(kv_heads, heads), given(head_dim, width // heads)
turns = rope(rope_rule, rope_theta, int(head_dim * turned_part))
x = tokens(vocab, width, name="model.embed_tokens", padding=padding)
stream(x)
for l in range(layers):
    p = f"model.layers.{l}."
    h = rms_norm(x, name=p + "input_layernorm", eps=norm_eps)
    q = linear(h, heads * head_dim, name=p + "self_attn.q_proj", bias=attention_bias, role="query")
    k = linear(h, kv_heads * head_dim, name=p + "self_attn.k_proj", bias=attention_bias, role="key")
    v = linear(h, kv_heads * head_dim, name=p + "self_attn.v_proj", bias=attention_bias, role="value")
    m = attention(rotary(q, heads, turns, interleaved=True), rotary(k, kv_heads, turns, interleaved=True), v, heads, kv_heads)
    a = linear(m, width, name=p + "self_attn.o_proj", role="attention_out")
    x = x + rms_norm(a, name=p + "post_self_attn_layernorm", eps=norm_eps)
    h = rms_norm(x, name=p + "post_attention_layernorm", eps=norm_eps)
    gate, up = fused(h, [ffn, ffn], ["ffn_gate", "ffn_in"], name=p + "mlp.gate_up_proj", parts=False)
    f = linear(multiply(function(gate, activation), up), width, name=p + "mlp.down_proj", role="ffn_out")
    x = x + rms_norm(f, name=p + "post_mlp_layernorm", eps=norm_eps)
    stream(x)
loss(head(rms_norm(x, name="model.norm", eps=norm_eps), vocab, name="lm_head", tied="model.embed_tokens.weight" if tied else ""))
