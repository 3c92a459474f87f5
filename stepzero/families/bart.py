# BART: an encoder and a decoder that reads it, learned positions, a norm after each sum.
from stepzero.arch import *

ignored("num_hidden_layers", "normalize_before", "add_bias_logits", "add_final_layer_norm", "classif_dropout", "static_position_embeddings", "extra_pos_embeddings", "force_bos_token_to_be_generated", "normalize_embedding", "early_stopping", "no_repeat_ngram_size")
arch("bart", width=key("d_model", 1024, also=["hidden_size"]), layers=key("encoder_layers", 12), decoder_layers=key("decoder_layers", 12),
     heads=key("encoder_attention_heads", 16), decoder_heads=key("decoder_attention_heads", 16), ffn=key("encoder_ffn_dim", 4096),
     decoder_ffn=key("decoder_ffn_dim", 4096), vocab=key("vocab_size", 50265), positions=key("max_position_embeddings", 1024),
     activation=activation_key("activation_function", "gelu"), scaled=key("scale_embedding", False), padding=key("pad_token_id", 1, null=-1),
     tied=key("tie_word_embeddings", True), init_std=key("init_std", 0.02))


def norm(x, name, label=""):
    return layer_norm(x, name=name, eps=1e-5, label=label)


def attend(x, memory, n, p, causal=False, cross=False):
    q = linear(x, width, name=p + "q_proj", bias=True, role="query")
    k = linear(memory, width, name=p + "k_proj", bias=True, role="key")
    v = linear(memory, width, name=p + "v_proj", bias=True, role="value")
    m = attention(q, k, v, n, causal=causal, cross=cross)
    return linear(m, width, name=p + "out_proj", bias=True, role="attention_out")


memory = None
for side, depth, n, f in [["encoder", layers, heads, ffn], ["decoder", decoder_layers, decoder_heads, decoder_ffn]]:
    stack(side)
    decodes = side == "decoder"
    x = tokens(vocab, width, name="model.shared", padding=padding, encoder=not decodes)
    if scaled:
        x = scale(x, sqrt(float(width)))
    x = add_positions(x, positions, name=f"model.{side}.embed_positions", offset=2)
    x = norm(x, f"model.{side}.layernorm_embedding", label="norm")
    stream(x)
    for l in range(depth):
        p = f"model.{side}.layers.{l}."
        x = norm(add(x, attend(x, x, n, p + "self_attn.", causal=decodes), label="attn.sum"), p + "self_attn_layer_norm", label="mid")
        if decodes:
            branch("cross")
            x = norm(add(x, attend(x, memory, n, p + "encoder_attn.", cross=True), label="cross.sum"), p + "encoder_attn_layer_norm", label="crossed")
        h = function(linear(x, f, name=p + "fc1", bias=True, role="ffn_in"), activation)
        h = linear(h, width, name=p + "fc2", bias=True, role="ffn_out")
        x = norm(add(x, h, label="ffn.sum"), p + "final_layer_norm")
        stream(x)
    memory = x
loss(head(x, vocab, name="lm_head", tied="model.shared.weight" if tied else "", constant_bias="final_logits_bias"))
