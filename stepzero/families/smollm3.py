# SmolLM3: LLaMA in which every fourth layer does not turn its queries and keys.
from stepzero.arch import *

arch("smollm3", width=key("hidden_size", 2048), layers=key("num_hidden_layers", 36), heads=key("num_attention_heads", 16),
     kv_heads=key("num_key_value_heads", 4, null=0), ffn=key("intermediate_size", 11008), vocab=key("vocab_size", 128256),
     positions=key("max_position_embeddings", 32768), norm_eps=key("rms_norm_eps", 1e-6), activation=activation_key("hidden_act", "silu"),
     attention_bias=key("attention_bias", False), mlp_bias=key("mlp_bias", False),
     window=only_if(key("use_sliding_window", False), key("sliding_window", 0)), layer_types=key("layer_types", []),
     turning_layers=key("no_rope_layers", []), still_every=key("no_rope_layer_interval", 4), padding=key("pad_token_id", 128004, null=-1),
     tied=key("tie_word_embeddings", True), rope_theta=rope_theta_key(2000000.0),
     rope_rule=rope_keys(key("max_position_embeddings", 32768)), init_std=key("initializer_range", 0.02))

kv_heads, head_dim = given(kv_heads, heads), width // heads
turns = rope(rope_rule, rope_theta, head_dim)
x = tokens(vocab, width, name="model.embed_tokens", padding=padding)
stream(x)
for l in range(layers):
    p = f"model.layers.{l}."
    # no_rope_layers holds 1 where a layer does turn
    turn = turning_layers[l % len(turning_layers)] == 1 if len(turning_layers) > 0 else (l + 1) % still_every != 0
    slides = layer_types[l % len(layer_types)] == "sliding_attention" if len(layer_types) > 0 else not turn
    h = rms_norm(x, name=p + "input_layernorm", eps=norm_eps)
    q = linear(h, heads * head_dim, name=p + "self_attn.q_proj", bias=attention_bias, role="query")
    k = linear(h, kv_heads * head_dim, name=p + "self_attn.k_proj", bias=attention_bias, role="key")
    v = linear(h, kv_heads * head_dim, name=p + "self_attn.v_proj", bias=attention_bias, role="value")
    if turn:
        q, k = rotary(q, heads, turns), rotary(k, kv_heads, turns)
    m = attention(q, k, v, heads, kv_heads, window=window if slides else 0)
    x = x + linear(m, width, name=p + "self_attn.o_proj", bias=attention_bias, role="attention_out")
    h = rms_norm(x, name=p + "post_attention_layernorm", eps=norm_eps)
    x = x + swiglu(h, ffn, gate=p + "mlp.gate_proj", up=p + "mlp.up_proj", down=p + "mlp.down_proj", act=activation, bias=mlp_bias)
    stream(x)
loss(head(rms_norm(x, name="model.norm", eps=norm_eps), vocab, name="lm_head", tied="model.embed_tokens.weight" if tied else ""))
