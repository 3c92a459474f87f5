# Gemma: LLaMA whose norms store gain - 1; embeddings are multiplied by sqrt(width).
from stepzero.arch import *

arch("gemma", width=4096, layers=32, heads=32, kv_heads=32, head_dim=128, ffn=11008, vocab=32000, positions=2048, norm_eps=1e-6,
     activation="gelu_tanh", attention_bias=False, embedding_scale=1.0, padding=-1, tied=True, rope_theta=10000.0, rope_rule=["none"],
     init_std=0.02)

turns = rope(rope_rule, rope_theta, head_dim)
x = tokens(vocab, width, name="model.embed_tokens", padding=padding)
x = scale(x, embedding_scale)
stream(x)
for l in range(layers):
    p = f"model.layers.{l}."
    h = rms_norm(x, name=p + "input_layernorm", offset=True, eps=norm_eps)
    q = linear(h, heads * head_dim, name=p + "self_attn.q_proj", bias=attention_bias, role="query")
    k = linear(h, kv_heads * head_dim, name=p + "self_attn.k_proj", bias=attention_bias, role="key")
    v = linear(h, kv_heads * head_dim, name=p + "self_attn.v_proj", bias=attention_bias, role="value")
    q = rotary(q, heads, turns)
    k = rotary(k, kv_heads, turns)
    m = attention(q, k, v, heads, kv_heads)
    x = x + linear(m, width, name=p + "self_attn.o_proj", bias=attention_bias, role="attention_out")
    h = rms_norm(x, name=p + "post_attention_layernorm", offset=True, eps=norm_eps)
    x = x + swiglu(h, ffn, gate=p + "mlp.gate_proj", up=p + "mlp.up_proj", down=p + "mlp.down_proj", act=activation)
    stream(x)
x = rms_norm(x, name="model.norm", offset=True, eps=norm_eps)
loss(head(x, vocab, name="lm_head", tied="model.embed_tokens.weight" if tied else ""))
