# MPT: no biases at all, linear biases on the scores, one matrix for queries, keys and values, which may be clipped.
from stepzero.arch import *

# the class reads none of these: its feed-forward is four times as wide, it has ALiBi, and no biases
ignored("embedding_fraction", "expansion_ratio", "init_device", "learned_pos_emb", "no_bias", "norm_type", "verbose", "logit_scale", "use_pad_tok_in_ffn")
arch("mpt", width=key("d_model", 2048, also=["hidden_size"]), layers=key("n_layers", 24, also=["num_hidden_layers"]),
     heads=key("n_heads", 16, also=["num_attention_heads"]), vocab=key("vocab_size", 50368), positions=key("max_seq_len", 2048),
     norm_eps=key("layer_norm_epsilon", 1e-5), clip_qkv=key("attn_config.clip_qkv", 0.0), attention_scale=key("attn_config.softmax_scale", 0.0),
     tied=key("tie_word_embeddings", True), init_std=key("initializer_range", 0.02))

# slopes of the next power of two, every second of them first
power = min([2 ** n for n in range(20) if 2 ** n >= heads])
slopes = [2.0 ** (-8.0 * (n + 1) / power) for n in range(power)]
if power != heads:
    slopes = ([slopes[2 * n + 1] for n in range(power // 2)] + [slopes[2 * n] for n in range(power // 2)])
slopes = [slopes[n] for n in range(heads)]
x = tokens(vocab, width, name="transformer.wte")
stream(x)
for l in range(layers):
    p = f"transformer.blocks.{l}."
    h = layer_norm(x, name=p + "norm_1", bias=False, eps=norm_eps)
    q, k, v = fused(h, [width, width, width], ["query", "key", "value"], name=p + "attn.Wqkv")
    if clip_qkv > 0:
        q, k, v = [clip(y, clip_qkv) for y in [q, k, v]]
    m = attention(q, k, v, heads, scale=attention_scale, alibi=slopes)
    x = x + linear(m, width, name=p + "attn.out_proj", role="attention_out")
    h = layer_norm(x, name=p + "norm_2", bias=False, eps=norm_eps)
    h = gelu(linear(h, 4 * width, name=p + "ffn.up_proj", role="ffn_in"))
    x = x + linear(h, width, name=p + "ffn.down_proj", role="ffn_out")
    stream(x)
x = layer_norm(x, name="transformer.norm_f", bias=False, eps=norm_eps)
loss(head(x, vocab, name="lm_head", tied="transformer.wte.weight" if tied else ""))
