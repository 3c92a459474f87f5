# Cohere: both branches read one norm without a bias, neighbouring channels turn, logits have a scale.
from stepzero.arch import *

arch("cohere", width=4096, layers=32, heads=32, kv_heads=32, head_dim=128, ffn=11008, vocab=32000, positions=2048, norm_eps=1e-6,
     activation="silu", attention_bias=False, qk_norm="none", logit_scale=0.0625, padding=-1, tied=False, rope_theta=10000.0,
     rope_rule=["none"], init_std=0.02)

turns = rope(rope_rule, rope_theta, head_dim)
x = tokens(vocab, width, name="model.embed_tokens", padding=padding)
stream(x)
for l in range(layers):
    p = f"model.layers.{l}."
    h = layer_norm(x, name=p + "input_layernorm", bias=False, eps=norm_eps)
    q = linear(h, heads * head_dim, name=p + "self_attn.q_proj", bias=attention_bias, role="query")
    k = linear(h, kv_heads * head_dim, name=p + "self_attn.k_proj", bias=attention_bias, role="key")
    v = linear(h, kv_heads * head_dim, name=p + "self_attn.v_proj", bias=attention_bias, role="value")
    if qk_norm == "each_head":
        q = layer_norm(q, name=p + "self_attn.q_norm", groups=heads, each=True, bias=False, eps=norm_eps)
        k = layer_norm(k, name=p + "self_attn.k_norm", groups=kv_heads, each=True, bias=False, eps=norm_eps)
    q = rotary(q, heads, turns, interleaved=True)
    k = rotary(k, kv_heads, turns, interleaved=True)
    m = attention(q, k, v, heads, kv_heads)
    a = linear(m, width, name=p + "self_attn.o_proj", bias=attention_bias, role="attention_out")
    f = swiglu(h, ffn, gate=p + "mlp.gate_proj", up=p + "mlp.up_proj", down=p + "mlp.down_proj", act=activation)
    x = x + a + f
    stream(x)
x = layer_norm(x, name="model.norm", bias=False, eps=norm_eps)
loss(head(x, vocab, name="lm_head", tied="model.embed_tokens.weight" if tied else "", scale=logit_scale))
