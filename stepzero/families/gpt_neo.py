# GPT-Neo: GPT-2 whose scores have no scale, with a window in every second layer.
from stepzero.arch import *

ignored("attention_layers")  # attention_types says it too
arch("gpt_neo", width=key("hidden_size", 2048), layers=key("num_layers", 24, also=["num_hidden_layers"]),
     heads=key("num_heads", 16, also=["num_attention_heads"]), ffn=key("intermediate_size", 0), vocab=key("vocab_size", 50257),
     positions=key("max_position_embeddings", 2048), norm_eps=key("layer_norm_epsilon", 1e-5),
     activation=activation_key("activation_function", "gelu_new"), window=key("window_size", 256),
     attention_types=key("attention_types", [[["global", "local"], 12]]), tied=key("tie_word_embeddings", True),
     init_std=key("initializer_range", 0.02))

kinds = []
for pattern, times in attention_types:
    kinds = kinds + pattern * times
x = tokens(vocab, width, name="transformer.wte")
x = add_positions(x, positions, name="transformer.wpe")
stream(x)
for l in range(layers):
    p = f"transformer.h.{l}."
    a = p + "attn.attention."
    h = layer_norm(x, name=p + "ln_1", eps=norm_eps)
    k = linear(h, width, name=a + "k_proj", role="key")
    v = linear(h, width, name=a + "v_proj", role="value")
    q = linear(h, width, name=a + "q_proj", role="query")
    m = attention(q, k, v, heads, scale=1.0, window=window if kinds[l % len(kinds)] == "local" else 0)
    x = x + linear(m, width, name=a + "out_proj", bias=True, role="attention_out")
    h = layer_norm(x, name=p + "ln_2", eps=norm_eps)
    h = function(linear(h, given(ffn, 4 * width), name=p + "mlp.c_fc", bias=True, role="ffn_in"), activation)
    x = x + linear(h, width, name=p + "mlp.c_proj", bias=True, role="ffn_out")
    stream(x)
x = layer_norm(x, name="transformer.ln_f", eps=norm_eps)
loss(head(x, vocab, name="lm_head", tied="transformer.wte.weight" if tied else ""))
