# Mamba 2: heads of channels that decay together, and a norm behind the gate.
from stepzero.arch import *

ignored("residual_in_fp32", "chunk_size", "rms_norm", "norm_before_gate", "time_step_rank", "intermediate_size", "use_associative_scan")
arch("mamba2", width=key("hidden_size", 4096), layers=key("num_hidden_layers", 64), heads=key("num_heads", 128), head_dim=key("head_dim", 64),
     vocab=key("vocab_size", 32768), states=key("state_size", 128), groups=key("n_groups", 8), expand=key("expand", 2.0),
     kernel=key("conv_kernel", 4), bias=key("use_bias", False), conv_bias=key("use_conv_bias", True), activation=activation_key("hidden_act", "silu"),
     norm_eps=key("layer_norm_epsilon", 1e-5), step_min=key("time_step_min", 0.001), step_max=key("time_step_max", 0.1),
     step_floor=key("time_step_floor", 1e-4), step_limit=key("time_step_limit", [0.0, 1e30]), rescale=key("rescale_prenorm_residual", False),
     tied=key("tie_word_embeddings", False), init_std=key("initializer_range", 0.1))

inner = int(width * expand)
if heads * head_dim != inner:
    fail(f"num_heads={heads} of head_dim={head_dim} are not expand * hidden_size = {inner} channels")
x = tokens(vocab, width, name="backbone.embeddings")
stream(x)
for l in range(layers):
    p = f"backbone.layers.{l}."
    m = p + "mixer."
    h = rms_norm(x, name=p + "norm", eps=norm_eps)
    branch("mixer")
    z, c, into, out, step = fused(h, [inner, inner, groups * states, groups * states, heads], ["ffn_gate", "ffn_in", "projection", "projection", "projection"],
                                  name=m + "in_proj", bias=bias, labels=["gate", "in", "B", "C", "step"], parts=False, role="ffn_in")
    seen = causal_conv([c, into, out], kernel, name=m + "conv1d", bias=conv_bias, init=uniform(kernel ** -0.5))
    c, into, out = [function(each, activation) for each in seen]
    y = scan(c, step, into, out, heads, states, m + "A_log", m + "D", m + "dt_bias", groups=groups, each=False, least=step_limit[0],
             most=min(step_limit[1], 1e30), step_init=time_steps(step_min, step_max, step_floor))
    y = rms_norm(multiply(y, silu(z)), name=m + "norm", eps=norm_eps)
    end = uniform(inner ** -0.5 * (layers ** -0.5 if rescale else 1.0))
    x = x + linear(y, width, name=m + "out_proj", bias=bias, role="ffn_out", init=end)
    stream(x)
loss(head(rms_norm(x, name="backbone.norm_f", eps=norm_eps), vocab, name="lm_head", tied="backbone.embeddings.weight" if tied else ""))
