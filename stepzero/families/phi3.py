# Phi-3: LLaMA with one matrix for queries, keys and values, and one for gate and up.
from stepzero.arch import *

arch("phi3", width=4096, layers=32, heads=32, kv_heads=32, head_dim=128, ffn=11008, vocab=32000, positions=2048, norm_eps=1e-6,
     activation="silu", window=0, turned=128, padding=-1, tied=False, rope_theta=10000.0, rope_rule=["none"], init_std=0.02)

turns = rope(rope_rule, rope_theta, turned)
x = tokens(vocab, width, name="model.embed_tokens", padding=padding)
stream(x)
for l in range(layers):
    p = f"model.layers.{l}."
    h = rms_norm(x, name=p + "input_layernorm", eps=norm_eps)
    sizes = [heads * head_dim, kv_heads * head_dim, kv_heads * head_dim]
    q, k, v = fused(h, sizes, ["query", "key", "value"], name=p + "self_attn.qkv_proj")
    q = rotary(q, heads, turns)
    k = rotary(k, kv_heads, turns)
    m = attention(q, k, v, heads, kv_heads, window=window)
    x = x + linear(m, width, name=p + "self_attn.o_proj", role="attention_out")
    h = rms_norm(x, name=p + "post_attention_layernorm", eps=norm_eps)
    gate, up = fused(h, [ffn, ffn], ["ffn_gate", "ffn_in"], name=p + "mlp.gate_up_proj", parts=False)
    x = x + linear(multiply(function(gate, activation), up), width, name=p + "mlp.down_proj", role="ffn_out")
    stream(x)
loss(head(rms_norm(x, name="model.norm", eps=norm_eps), vocab, name="lm_head", tied="model.embed_tokens.weight" if tied else ""))
