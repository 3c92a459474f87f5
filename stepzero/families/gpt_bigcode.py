# GPTBigCode (StarCoder): GPT-2 whose heads share one key and one value.
from stepzero.arch import *

ignored("num_key_value_heads", "attention_softmax_in_fp32", "scale_attention_softmax_in_fp32", "inference_runner")
arch("gpt_bigcode", width=key("n_embd", 768, also=["hidden_size"]), layers=key("n_layer", 12, also=["num_hidden_layers"]),
     heads=key("n_head", 12, also=["num_attention_heads"]), ffn=key("n_inner", 0), vocab=key("vocab_size", 50257),
     positions=key("n_positions", 1024, also=["max_position_embeddings"]), norm_eps=key("layer_norm_epsilon", 1e-5),
     activation=activation_key("activation_function", "gelu_pytorch_tanh"), scaled=key("scale_attn_weights", True),
     one_key=key("multi_query", True), tied=key("tie_word_embeddings", True), init_std=key("initializer_range", 0.02))

ffn, kv_heads = given(ffn, 4 * width), 1 if one_key else heads
head_dim = width // heads
small = normal(init_std / sqrt(2.0 * layers))
x = tokens(vocab, width, name="transformer.wte")
x = add_positions(x, positions, name="transformer.wpe")
stream(x)
for l in range(layers):
    p = f"transformer.h.{l}."
    h = layer_norm(x, name=p + "ln_1", eps=norm_eps)
    q, k, v = fused(h, [width, kv_heads * head_dim, kv_heads * head_dim], ["query", "key", "value"], name=p + "attn.c_attn", bias=True,
                    groups=1 if one_key else heads)
    m = attention(q, k, v, heads, kv_heads, scale=1 / sqrt(float(head_dim)) if scaled else 1.0)
    x = x + linear(m, width, name=p + "attn.c_proj", bias=True, role="attention_out", init=small)
    h = layer_norm(x, name=p + "ln_2", eps=norm_eps)
    h = function(linear(h, ffn, name=p + "mlp.c_fc", bias=True, role="ffn_in"), activation)
    x = x + linear(h, width, name=p + "mlp.c_proj", bias=True, role="ffn_out", init=small)
    stream(x)
x = layer_norm(x, name="transformer.ln_f", eps=norm_eps)
loss(head(x, vocab, name="lm_head", tied="transformer.wte.weight" if tied else ""))
