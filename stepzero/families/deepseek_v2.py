# DeepSeek-V2: keys and values come from a latent of few channels; experts beside ones that every token takes.
from stepzero.arch import *

arch("deepseek_v2", width=4096, layers=32, heads=32, ffn=11008, vocab=32000, positions=2048, query_rank=1536, key_value_rank=512,
     key_dim=128, key_rope_dim=64, value_dim=128, norm_eps=1e-6, activation="silu", attention_bias=False, attention_scale=0.07,
     n_experts=64, experts_per_token=6, shared_experts=2, expert_ffn=1407, dense_layers=0, router_scale=1.0, router_groups=1,
     router_kept_groups=1, rotary_interleaved=True, padding=-1, tied=False, rope_theta=10000.0, rope_rule=["none"], init_std=0.02)

turns = rope(rope_rule, rope_theta, key_rope_dim)


def latent_attention(x, p):
    h, wide = x, heads * (key_dim + key_rope_dim)
    if query_rank > 0:
        h = linear(x, query_rank, name=p + "q_a_proj", bias=attention_bias, role="query", label="q_latent")
        h = rms_norm(h, name=p + "q_a_layernorm")
    q = linear(h, wide, name=p + ("q_b_proj" if query_rank > 0 else "q_proj"), role="query")
    latent, shared = fused(x, [key_value_rank, key_rope_dim], ["key", "key"], name=p + "kv_a_proj_with_mqa", bias=attention_bias, parts=False,
                           labels=["kv_latent", "k_shared"])
    latent = rms_norm(latent, name=p + "kv_a_layernorm")
    own, v = fused(latent, [heads * key_dim, heads * value_dim], ["key", "value"], name=p + "kv_b_proj", groups=heads, parts=False,
                   role="query_key_value", labels=["k_own", "v"])
    k = join_heads(own, shared, heads)
    q, k = [rotary(y, heads, turns, first=key_dim, interleaved=rotary_interleaved) for y in [q, k]]
    m = attention(q, k, v, heads, scale=attention_scale)
    return linear(m, width, name=p + "o_proj", bias=attention_bias, role="attention_out")


def mixture(x, p):
    label = "experts" if shared_experts > 0 else "out"
    choice = linear(x, n_experts, name=p + "mlp.gate", role="router")
    e = p + "mlp.experts.{}."
    routed = experts(x, choice, expert_ffn, [e + "gate_proj", e + "up_proj", e + "down_proj"], experts_per_token, act=activation,
                    normalise=False, factor=router_scale, groups=router_groups,
                    kept_groups=router_kept_groups, label=label)
    if shared_experts == 0:
        return routed
    s, n = p + "mlp.shared_experts.", shared_experts * expert_ffn
    gate = function(linear(x, n, name=s + "gate_proj", role="ffn_gate", label="ffn.shared.gate"), activation, label="ffn.shared.act")
    up = linear(x, n, name=s + "up_proj", role="ffn_in", label="ffn.shared.up")
    out = linear(multiply(gate, up, label="ffn.shared.product"), width, name=s + "down_proj", role="ffn_out", label="ffn.shared.out")
    return add(routed, out, label="ffn.out")


x = tokens(vocab, width, name="model.embed_tokens", padding=padding)
stream(x)
for l in range(layers):
    p = f"model.layers.{l}."
    x = x + latent_attention(rms_norm(x, name=p + "input_layernorm", eps=norm_eps), p + "self_attn.")
    h = rms_norm(x, name=p + "post_attention_layernorm", eps=norm_eps)
    if l < dense_layers:
        x = x + swiglu(h, ffn, gate=p + "mlp.gate_proj", up=p + "mlp.up_proj", down=p + "mlp.down_proj", act=activation)
    else:
        x = x + mixture(h, p)
    stream(x)
loss(head(rms_norm(x, name="model.norm", eps=norm_eps), vocab, name="lm_head", tied="model.embed_tokens.weight" if tied else ""))
