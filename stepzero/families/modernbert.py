# ModernBERT: an encoder with norms before its branches (none in front of the first attention), GeGLU, and two of three layers that see a window.
from stepzero.arch import *

ignored("deterministic_flash_attn", "repad_logits_with_grad", "sparse_prediction", "sparse_pred_ignore_index", "reference_compile")
arch("modernbert", width=key("hidden_size", 768), layers=key("num_hidden_layers", 22), heads=key("num_attention_heads", 12),
     ffn=key("intermediate_size", 1152), vocab=key("vocab_size", 50368), positions=key("max_position_embeddings", 8192),
     norm_eps=key("norm_eps", 1e-5), norm_bias=key("norm_bias", False), activation=activation_key("hidden_activation", "gelu"),
     attention_bias=key("attention_bias", False), mlp_bias=key("mlp_bias", False), head_bias=key("classifier_bias", False),
     head_activation=activation_key("classifier_activation", "gelu"), logit_bias=key("decoder_bias", True),
     full_every=key("global_attn_every_n_layers", 3), window=key("local_attention", 128) // 2 + 1,
     rope_theta=key("global_rope_theta", 160000.0, also=["rope_theta"]), rope_theta_window=key("local_rope_theta", 10000.0, null=0.0),
     padding=key("pad_token_id", 50283, null=-1), tied=key("tie_word_embeddings", True), init_std=key("initializer_range", 0.02),
     init_cut=key("initializer_cutoff_factor", 2.0, null=3.0))

inner, outer = truncated(init_std, init_cut), truncated(init_std / sqrt(2.0 * layers), init_cut)


def norm(x, name):
    return layer_norm(x, name=name, bias=norm_bias, eps=norm_eps)


x = tokens(vocab, width, name="model.embeddings.tok_embeddings", padding=padding, init=inner)
x = norm(x, "model.embeddings.norm")
stream(x)
for l in range(layers):
    p = f"model.layers.{l}."
    full = l % full_every == 0
    h = norm(x, p + "attn_norm") if l > 0 else x
    q, k, v = fused(h, [width, width, width], ["query", "key", "value"], name=p + "attn.Wqkv", bias=attention_bias, init=inner)
    theta = rope_theta if full or rope_theta_window == 0 else rope_theta_window
    q, k = rotary(q, heads, theta=theta), rotary(k, heads, theta=theta)
    m = attention(q, k, v, heads, causal=False, window=0 if full else window)
    x = x + linear(m, width, name=p + "attn.Wo", bias=attention_bias, role="attention_out", init=outer)
    gate, up = fused(norm(x, p + "mlp_norm"), [ffn, ffn], ["ffn_gate", "ffn_in"], name=p + "mlp.Wi", bias=mlp_bias, parts=False, init=inner)
    f = multiply(function(gate, activation), up)
    x = x + linear(f, width, name=p + "mlp.Wo", bias=mlp_bias, role="ffn_out", init=outer)
    stream(x)
x = norm(x, "model.final_norm")
branch("head")
x = function(linear(x, width, name="head.dense", bias=head_bias, label="dense", init=outer), head_activation)
x = norm(x, "head.norm")
loss(head(x, vocab, name="decoder", tied="model.embeddings.tok_embeddings.weight" if tied else "", bias="decoder.bias" if logit_bias else "", init=outer))
