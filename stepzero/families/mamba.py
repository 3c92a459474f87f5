# Mamba: no attention; each channel keeps a few states that decay, and every token says how much it is taken in.
from stepzero.arch import *

ignored("residual_in_fp32", "use_mambapy", "fused_add_norm", "rms_norm", "ssm_cfg", "d_inner", "d_model", "n_layer", "pad_vocab_size_multiple",
        "use_associative_scan", "intermediate_size")
arch("mamba", width=key("hidden_size", 768), layers=key("num_hidden_layers", 32), vocab=key("vocab_size", 50280), states=key("state_size", 16),
     expand=key("expand", 2.0), kernel=key("conv_kernel", 4), rank=key("time_step_rank", None), bias=key("use_bias", False),
     conv_bias=key("use_conv_bias", True), activation=activation_key("hidden_act", "silu"), norm_eps=key("layer_norm_epsilon", 1e-5),
     step_scale=key("time_step_scale", 1.0), step_min=key("time_step_min", 0.001), step_max=key("time_step_max", 0.1),
     step_floor=key("time_step_floor", 1e-4), step_scheme=key("time_step_init_scheme", "random"), rescale=key("rescale_prenorm_residual", False),
     tied=key("tie_word_embeddings", True), init_std=key("initializer_range", 0.1))

inner = int(width * expand)
if rank is None or rank == "auto":
    rank = (width + 15) // 16
spread = rank ** -0.5 * step_scale
x = tokens(vocab, width, name="backbone.embeddings")
stream(x)
for l in range(layers):
    p = f"backbone.layers.{l}."
    m = p + "mixer."
    h = rms_norm(x, name=p + "norm", eps=norm_eps)
    branch("mixer")
    c, z = fused(h, [inner, inner], ["ffn_in", "ffn_gate"], name=m + "in_proj", bias=bias, labels=["in", "gate"], parts=False, role="ffn_in")
    c = function(causal_conv([c], kernel, name=m + "conv1d", bias=conv_bias, init=uniform(kernel ** -0.5))[0], activation)
    step, into, out = fused(c, [rank, states, states], ["projection", "projection", "projection"], name=m + "x_proj", parts=False,
                            labels=["step_low", "B", "C"])
    step = linear(step, inner, name=m + "dt_proj", init=constant(spread) if step_scheme == "constant" else uniform(spread), label="step")
    y = scan(c, step, into, out, inner, states, m + "A_log", m + "D", m + "dt_proj.bias", step_init=time_steps(step_min, step_max, step_floor))
    y = multiply(y, function(z, activation))
    end = uniform(inner ** -0.5 * (layers ** -0.5 if rescale else 1.0))
    x = x + linear(y, width, name=m + "out_proj", bias=bias, role="ffn_out", init=end)
    stream(x)
loss(head(rms_norm(x, name="backbone.norm_f", eps=norm_eps), vocab, name="lm_head", tied="backbone.embeddings.weight" if tied else ""))
