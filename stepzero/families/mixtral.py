# Mixtral: LLaMA whose feed-forward is two of several experts, chosen for each token.
from stepzero.arch import *

arch("mixtral", width=4096, layers=32, heads=32, kv_heads=8, head_dim=128, ffn=11008, vocab=32000, positions=2048, norm_eps=1e-5,
     activation="silu", experts_per_token=2, n_experts=8, window=0, padding=-1, tied=False, rope_theta=1000000.0, rope_rule=["none"],
     init_std=0.02)

turns = rope(rope_rule, rope_theta, head_dim)
x = tokens(vocab, width, name="model.embed_tokens", padding=padding)
stream(x)
for l in range(layers):
    p = f"model.layers.{l}."
    h = rms_norm(x, name=p + "input_layernorm", eps=norm_eps)
    q = linear(h, heads * head_dim, name=p + "self_attn.q_proj", role="query")
    k = linear(h, kv_heads * head_dim, name=p + "self_attn.k_proj", role="key")
    v = linear(h, kv_heads * head_dim, name=p + "self_attn.v_proj", role="value")
    q = rotary(q, heads, turns)
    k = rotary(k, kv_heads, turns)
    m = attention(q, k, v, heads, kv_heads, window=window)
    x = x + linear(m, width, name=p + "self_attn.o_proj", role="attention_out")
    h = rms_norm(x, name=p + "post_attention_layernorm", eps=norm_eps)
    e = p + "block_sparse_moe."
    choice = linear(h, n_experts, name=e + "gate", role="router")
    x = x + experts(h, choice, ffn, [e + "experts.{}.w1", e + "experts.{}.w3", e + "experts.{}.w2"], experts_per_token, act=activation)
    stream(x)
loss(head(rms_norm(x, name="model.norm", eps=norm_eps), vocab, name="lm_head", tied="model.embed_tokens.weight" if tied else ""))
