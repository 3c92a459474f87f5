# Qwen2 MoE: Qwen2 whose feed-forward is a few of many experts and one that all tokens take, as much as a gate of the token lets through.
from stepzero.arch import *

arch("qwen2_moe", width=key("hidden_size", 2048), layers=key("num_hidden_layers", 24), heads=key("num_attention_heads", 16),
     kv_heads=key("num_key_value_heads", 16, null=0), ffn=key("intermediate_size", 5632),
     vocab=key("vocab_size", 151936), positions=key("max_position_embeddings", 32768), norm_eps=key("rms_norm_eps", 1e-6),
     activation=activation_key("hidden_act", "silu"), attention_bias=key("qkv_bias", True),
     window=only_if(key("use_sliding_window", False), key("sliding_window", 4096, null=0)), n_experts=key("num_experts", 60),
     experts_per_token=key("num_experts_per_tok", 4), expert_ffn=key("moe_intermediate_size", 1408),
     shared_ffn=key("shared_expert_intermediate_size", 5632),
     router_normalise=key("norm_topk_prob", False), sparse_step=key("decoder_sparse_step", 1), dense_layers=key("mlp_only_layers", []),
     padding=key("pad_token_id", -1), tied=key("tie_word_embeddings", False), rope_theta=rope_theta_key(10000.0),
     rope_rule=rope_keys(key("max_position_embeddings", 32768)), init_std=key("initializer_range", 0.02))

kv_heads, head_dim = given(kv_heads, heads), width // heads
turns = rope(rope_rule, rope_theta, head_dim)
x = tokens(vocab, width, name="model.embed_tokens", padding=padding)
stream(x)
for l in range(layers):
    p = f"model.layers.{l}."
    h = rms_norm(x, name=p + "input_layernorm", eps=norm_eps)
    q = linear(h, heads * head_dim, name=p + "self_attn.q_proj", bias=attention_bias, role="query")
    k = linear(h, kv_heads * head_dim, name=p + "self_attn.k_proj", bias=attention_bias, role="key")
    v = linear(h, kv_heads * head_dim, name=p + "self_attn.v_proj", bias=attention_bias, role="value")
    m = attention(rotary(q, heads, turns), rotary(k, kv_heads, turns), v, heads, kv_heads, window=window)
    x = x + linear(m, width, name=p + "self_attn.o_proj", role="attention_out")
    h = rms_norm(x, name=p + "post_attention_layernorm", eps=norm_eps)
    if l in dense_layers or (l + 1) % sparse_step != 0 or n_experts == 0:
        x = x + swiglu(h, ffn, gate=p + "mlp.gate_proj", up=p + "mlp.up_proj", down=p + "mlp.down_proj", act=activation)
    else:
        choice = linear(h, n_experts, name=p + "mlp.gate", role="router")
        e = p + "mlp.experts.{}."
        routed = experts(h, choice, expert_ffn, [e + "gate_proj", e + "up_proj", e + "down_proj"], experts_per_token, act=activation,
                         normalise=router_normalise, label="experts")
        x = x + shared_expert(h, routed, shared_ffn, p + "mlp.shared_expert.", activation, gate=p + "mlp.shared_expert_gate")
    stream(x)
loss(head(rms_norm(x, name="model.norm", eps=norm_eps), vocab, name="lm_head", tied="model.embed_tokens.weight" if tied else ""))
