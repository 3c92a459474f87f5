# Whisper: an encoder that hears, two convolutions in front of it, and a decoder that reads it.
from stepzero.arch import *

ignored("num_hidden_layers", "scale_embedding", "median_filter_width", "apply_spec_augment", "begin_suppress_tokens", "suppress_tokens",
        "use_weighted_layer_sum", "forced_decoder_ids", "alignment_heads", "lang_to_id", "max_length", "classifier_proj_size")
arch("whisper", width=key("d_model", 384, also=["hidden_size"]), layers=key("encoder_layers", 4), decoder_layers=key("decoder_layers", 4),
     heads=key("encoder_attention_heads", 6), decoder_heads=key("decoder_attention_heads", 6), ffn=key("encoder_ffn_dim", 1536),
     decoder_ffn=key("decoder_ffn_dim", 1536), vocab=key("vocab_size", 51865), bands=key("num_mel_bins", 80),
     heard=key("max_source_positions", 1500), positions=key("max_target_positions", 448), activation=activation_key("activation_function", "gelu"),
     padding=key("pad_token_id", 50256, null=-1), tied=key("tie_word_embeddings", True), init_std=key("init_std", 0.02))


def attend(x, memory, n, p, causal=False, cross=False):
    q = linear(x, width, name=p + "q_proj", bias=True, role="query")
    k = linear(memory, width, name=p + "k_proj", role="key")
    v = linear(memory, width, name=p + "v_proj", bias=True, role="value")
    return linear(attention(q, k, v, n, causal=causal, cross=cross), width, name=p + "out_proj", bias=True, role="attention_out")


def feed_forward(x, f, p):
    h = function(linear(x, f, name=p + "fc1", bias=True, role="ffn_in"), activation)
    return linear(h, width, name=p + "fc2", bias=True, role="ffn_out")


stack("encoder")
x = gelu(time_conv(features(2 * heard, bands), width, 3, name="model.encoder.conv1", before=1, after=1))
x = gelu(time_conv(x, width, 3, name="model.encoder.conv2", stride=2, before=1, after=1))
x = add_positions(x, heard, name="model.encoder.embed_positions", init=waves(heard, width), frozen=True)
stream(x)
for l in range(layers):
    p = f"model.encoder.layers.{l}."
    h = layer_norm(x, name=p + "self_attn_layer_norm")
    x = x + attend(h, h, heads, p + "self_attn.")
    x = x + feed_forward(layer_norm(x, name=p + "final_layer_norm"), ffn, p)
    stream(x)
memory = layer_norm(x, name="model.encoder.layer_norm")
stack("decoder")
x = tokens(vocab, width, name="model.decoder.embed_tokens", padding=padding)
x = add_positions(x, positions, name="model.decoder.embed_positions")
stream(x)
for l in range(decoder_layers):
    p = f"model.decoder.layers.{l}."
    h = layer_norm(x, name=p + "self_attn_layer_norm")
    x = x + attend(h, h, decoder_heads, p + "self_attn.", causal=True)
    branch("cross")
    h = layer_norm(x, name=p + "encoder_attn_layer_norm")
    x = add(x, attend(h, memory, decoder_heads, p + "encoder_attn.", cross=True), label="crossed")
    x = x + feed_forward(layer_norm(x, name=p + "final_layer_norm"), decoder_ffn, p)
    stream(x)
x = layer_norm(x, name="model.decoder.layer_norm")
loss(head(x, vocab, name="proj_out", tied="model.decoder.embed_tokens.weight" if tied else ""))
