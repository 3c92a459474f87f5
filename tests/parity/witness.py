#!/usr/bin/python3
"""The independent witness: GPT-2 and LLaMA in elementary PyTorch, differentiated by autograd.

    witness.py make DIR                          new cases with their golden numbers, in DIR/<case>/
    witness.py run DIR/<case> --out OUT [--dtype float32|float64]
                                                 recompute one case; same two output files, in OUT/
    witness.py verify PARITY_DIR                 compare this file with what Hugging Face's own classes gave

Nothing here shares a formula with stepzero's backward pass: the forward pass is written out, the rest is autograd.

A case is a directory with
    config.json         Hugging Face keys, model_type "gpt2" or "llama"
    tokens.txt          one sequence a line, T+1 ids: the first T are read, the last T are the targets
    model.safetensors   F32, Hugging Face names and shapes (gpt2: Conv1D, [in, out]); no lm_head when tied
and the witness adds two files.

gradients.safetensors: dloss/dparameter, F32, under exactly the names and shapes of model.safetensors.
A tied matrix appears once, with the sum of both uses.

reference.json, numbers printed so that they read back exactly:
    {
      "model_type": "gpt2", "dtype": "float64", "torch": "1.13.0a0",
      "batch": B, "tokens": T,
      "loss": mean over all B*T positions of -ln p(next token),
      "logits": [B][T][V],
      "nodes": {
        "stream.0": {
          "channels": C,                   the node has shape (B, T, C), heads flattened into C
          "second_moment": mean of x^2 over all B*T*C elements,
          "variance": second_moment - mean^2 (population, about the one overall mean),
          "mean": mean of x,
          "token_cosine": mean over batch and over pairs s != t of one sequence of cos(x_s, x_t),
          "gradient": {"norm": sqrt(sum g^2), "second_moment": mean of g^2, "token_cosine": as above}
        }, ...
      },
      "attention": {
        "blocks.0.attn": {
          "score_variance": population variance over batch, heads and visible (query, key) pairs of the scaled score,
          "entropy": mean over batch, heads, queries of -sum_j A_j ln A_j (nats),
          "sum_squares": mean over batch, heads, queries of sum_j A_j^2
        }, ...
      },
      "parameters": {
        "transformer.wte.weight": {"shape": [...], "gradient_norm": sqrt(sum g^2)}, ...
      }
    }
g is the total derivative of the loss by the node: what arrives over every path that leaves it.
A pair with a zero vector has cosine 0 and still counts. It happens: the first query sees one key, so its
attention is the constant 1 and the gradient at q is exactly 0 there.

Nodes, in order (l counts blocks from 0):
    embed.tokens; gpt2: embed.positions (tokens + positions); stream.0 (input of the first block, the same values)
    blocks.l.attn.norm  .q  .k  .v  (llama: .q_rot  .k_rot)  .mix (before the output projection)  .out
    blocks.l.mid  (residual after attention)
    blocks.l.ffn.norm   gpt2: .in  .act  .out     llama: .gate  .act  .up  .product  .out
    stream.{l+1}  (output of block l)
    final.norm; logits
q, k and v are the linear outputs, before rotary; k and v have num_key_value_heads heads.
"""

import argparse
import json
import math
import pathlib
import sys

import numpy as np
import torch

# ---------------------------------------------------------------- files


def read_safetensors(path):
    raw = pathlib.Path(path).read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        kind = {"F32": "<f4", "F64": "<f8"}[entry["dtype"]]
        begin, end = entry["data_offsets"]
        tensors[name] = np.frombuffer(raw[start + begin : start + end], kind).reshape(entry["shape"])
    return tensors


def write_safetensors(path, tensors):
    header, data, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name in sorted(tensors):
        values = np.ascontiguousarray(tensors[name], "<f4")
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [at, at + values.nbytes]}
        data.append(values.tobytes())
        at += values.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(len(text).to_bytes(8, "little") + text + b"".join(data))


def read_tokens(path):
    return torch.tensor([[int(word) for word in line.split()] for line in open(path) if line.strip()])


def write_json(path, value):
    """One line a node: readable, and small in a diff."""
    logits = value.pop("logits") if "logits" in value else None
    lines = []
    for key, entry in value.items():
        if isinstance(entry, dict):
            rows = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v, allow_nan=False)}" for k, v in entry.items())
            lines.append(f"{json.dumps(key)}: {{\n{rows}\n}}")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(entry, allow_nan=False)}")
    if logits is not None:
        rows = ",\n".join("  " + json.dumps(sequence, allow_nan=False) for sequence in logits)
        lines.append(f'"logits": [\n{rows}\n]')
    pathlib.Path(path).write_text("{\n" + ",\n".join(lines) + "\n}\n")


# ---------------------------------------------------------------- elementary parts


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


ACTIVATIONS = {
    "gelu": lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))),
    "gelu_new": gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
    "relu": lambda x: x.clamp(min=0),
    "silu": lambda x: x * torch.sigmoid(x),
}


def layer_norm(x, gain, bias, eps):
    centred = x - x.mean(-1, keepdim=True)
    return gain * centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + eps) + bias


def rms_norm(x, gain, eps):
    return gain * x / torch.sqrt((x**2).mean(-1, keepdim=True) + eps)


def rotate(x, theta):
    """Rotary positions on x (B, T, heads, D): channel i turns with channel i + D/2 by t * theta^(-2i/D)."""
    length, half = x.shape[1], x.shape[3] // 2
    speed = theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * speed
    cos, sin = angle.cos()[:, None, :].to(x.dtype), angle.sin()[:, None, :].to(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


class Trace:
    """What the forward pass leaves behind: named nodes (B, T, C) that keep their gradient, and attention numbers."""

    def __init__(self):
        self.nodes, self.attention = {}, {}

    def node(self, name, x):
        x.retain_grad()
        self.nodes[name] = x
        return x

    def attend(self, name, q, k, v, scale):
        """Causal softmax on q (B, T, heads, D) and k, v (B, T, kv heads, D); adjacent heads share a kv head."""
        length, groups = q.shape[1], q.shape[2] // k.shape[2]
        q = q.transpose(1, 2)
        k = k.transpose(1, 2).repeat_interleave(groups, dim=1)
        v = v.transpose(1, 2).repeat_interleave(groups, dim=1)
        scores = scale * (q @ k.transpose(2, 3))
        visible = torch.ones(length, length, dtype=torch.bool).tril()
        weights = torch.softmax(scores.masked_fill(~visible, -math.inf), -1)
        with torch.no_grad():
            seen = scores[..., visible]
            self.attention[name] = {
                "score_variance": ((seen - seen.mean()) ** 2).mean().item(),
                "entropy": -torch.xlogy(weights, weights).sum(-1).mean().item(),
                "sum_squares": (weights**2).sum(-1).mean().item(),
            }
        return (weights @ v).transpose(1, 2).flatten(2)


# ---------------------------------------------------------------- the two models


def gpt2(config, weight, ids, trace):
    width, heads = config["n_embd"], config["n_head"]
    eps = config.get("layer_norm_epsilon", 1e-5)
    act = ACTIVATIONS[config.get("activation_function", "gelu_new")]
    root = "transformer." if "transformer.wte.weight" in weight else ""
    node = trace.node

    def conv1d(x, name):
        return x @ weight[name + ".weight"] + weight[name + ".bias"]

    def norm(x, name):
        return layer_norm(x, weight[name + ".weight"], weight[name + ".bias"], eps)

    def split_heads(x):
        return x.unflatten(-1, (heads, width // heads))

    x = node("embed.tokens", weight[root + "wte.weight"][ids])
    x = node("embed.positions", x + weight[root + "wpe.weight"][: ids.shape[1]])
    node("stream.0", x)
    for l in range(config["n_layer"]):
        file, name = f"{root}h.{l}.", f"blocks.{l}."
        scale = (width // heads) ** -0.5 if config.get("scale_attn_weights", True) else 1.0
        if config.get("scale_attn_by_inverse_layer_idx", False):
            scale /= l + 1

        h = node(name + "attn.norm", norm(x, file + "ln_1"))
        q, k, v = conv1d(h, file + "attn.c_attn").split(width, -1)
        q, k, v = node(name + "attn.q", q), node(name + "attn.k", k), node(name + "attn.v", v)
        mix = trace.attend(name + "attn", split_heads(q), split_heads(k), split_heads(v), scale)
        out = conv1d(node(name + "attn.mix", mix), file + "attn.c_proj")
        x = node(name + "mid", x + node(name + "attn.out", out))

        h = node(name + "ffn.norm", norm(x, file + "ln_2"))
        h = node(name + "ffn.in", conv1d(h, file + "mlp.c_fc"))
        h = node(name + "ffn.act", act(h))
        x = node(f"stream.{l + 1}", x + node(name + "ffn.out", conv1d(h, file + "mlp.c_proj")))
    x = node("final.norm", norm(x, root + "ln_f"))
    head = weight[root + "wte.weight" if config.get("tie_word_embeddings", True) else "lm_head.weight"]
    return node("logits", x @ head.T)


def llama(config, weight, ids, trace):
    width, heads = config["hidden_size"], config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    head_dim = config.get("head_dim") or width // heads
    theta = (config.get("rope_parameters") or {}).get("rope_theta") or config.get("rope_theta", 10000.0)
    eps = config.get("rms_norm_eps", 1e-6)
    act = ACTIVATIONS[config.get("hidden_act", "silu")]
    node = trace.node

    def linear(x, name, bias):
        y = x @ weight[name + ".weight"].T
        return y + weight[name + ".bias"] if bias else y

    x = node("embed.tokens", weight["model.embed_tokens.weight"][ids])
    node("stream.0", x)
    for l in range(config["num_hidden_layers"]):
        file, name = f"model.layers.{l}.", f"blocks.{l}."
        bias = config.get("attention_bias", False)
        h = node(name + "attn.norm", rms_norm(x, weight[file + "input_layernorm.weight"], eps))
        q = node(name + "attn.q", linear(h, file + "self_attn.q_proj", bias))
        k = node(name + "attn.k", linear(h, file + "self_attn.k_proj", bias))
        v = node(name + "attn.v", linear(h, file + "self_attn.v_proj", bias))
        q = node(name + "attn.q_rot", rotate(q.unflatten(-1, (heads, head_dim)), theta).flatten(2))
        k = node(name + "attn.k_rot", rotate(k.unflatten(-1, (kv_heads, head_dim)), theta).flatten(2))
        mix = trace.attend(
            name + "attn",
            q.unflatten(-1, (heads, head_dim)),
            k.unflatten(-1, (kv_heads, head_dim)),
            v.unflatten(-1, (kv_heads, head_dim)),
            head_dim**-0.5,
        )
        out = linear(node(name + "attn.mix", mix), file + "self_attn.o_proj", bias)
        x = node(name + "mid", x + node(name + "attn.out", out))

        bias = config.get("mlp_bias", False)
        h = node(name + "ffn.norm", rms_norm(x, weight[file + "post_attention_layernorm.weight"], eps))
        gate = node(name + "ffn.act", act(node(name + "ffn.gate", linear(h, file + "mlp.gate_proj", bias))))
        up = node(name + "ffn.up", linear(h, file + "mlp.up_proj", bias))
        out = linear(node(name + "ffn.product", gate * up), file + "mlp.down_proj", bias)
        x = node(f"stream.{l + 1}", x + node(name + "ffn.out", out))
    x = node("final.norm", rms_norm(x, weight["model.norm.weight"], eps))
    head = weight["model.embed_tokens.weight" if config.get("tie_word_embeddings", False) else "lm_head.weight"]
    return node("logits", x @ head.T)


MODELS = {"gpt2": gpt2, "llama": llama}

# ---------------------------------------------------------------- measuring


def token_cosine(x):
    """Mean over batch and ordered pairs s != t of cos(x_s, x_t); a zero vector has cosine 0 with everything."""
    length = x.shape[1]
    if length < 2:
        return 0.0
    norm = x.norm(dim=-1, keepdim=True)
    unit = torch.where(norm > 0, x / norm, torch.zeros_like(x))
    gram = unit @ unit.transpose(1, 2)
    off_diagonal = gram.sum((1, 2)) - gram.diagonal(dim1=1, dim2=2).sum(1)
    return (off_diagonal / (length * (length - 1))).mean().item()


def describe(x, g):
    mean = x.mean()
    return {
        "channels": x.shape[-1],
        "second_moment": (x**2).mean().item(),
        "variance": ((x - mean) ** 2).mean().item(),
        "mean": mean.item(),
        "token_cosine": token_cosine(x),
        "gradient": {
            "norm": g.norm().item(),
            "second_moment": (g**2).mean().item(),
            "token_cosine": token_cosine(g),
        },
    }


def measure(directory, dtype):
    """Run a case; returns (the content of reference.json, {parameter: gradient})."""
    directory = pathlib.Path(directory)
    config = json.loads((directory / "config.json").read_text())
    stored = read_safetensors(directory / "model.safetensors")
    weight = {name: torch.tensor(values, dtype=dtype, requires_grad=True) for name, values in stored.items()}
    tokens = read_tokens(directory / "tokens.txt")
    ids, targets = tokens[:, :-1], tokens[:, 1:]

    trace = Trace()
    logits = MODELS[config["model_type"]](config, weight, ids, trace)
    log_p = logits - torch.logsumexp(logits, -1, keepdim=True)
    loss = -log_p.gather(-1, targets[..., None]).mean()
    loss.backward()

    unused = [name for name, parameter in weight.items() if parameter.grad is None]
    if unused:
        sys.exit(f"{directory}: model.safetensors: the model does not use {', '.join(unused)}")
    gradients = {name: parameter.grad for name, parameter in weight.items()}
    reference = {
        "model_type": config["model_type"],
        "dtype": str(dtype).replace("torch.", ""),
        "torch": torch.__version__,
        "batch": ids.shape[0],
        "tokens": ids.shape[1],
        "loss": loss.item(),
        "nodes": {name: describe(x.detach(), x.grad) for name, x in trace.nodes.items()},
        "attention": trace.attention,
        "parameters": {
            name: {"shape": list(g.shape), "gradient_norm": g.norm().item()} for name, g in gradients.items()
        },
        "logits": logits.tolist(),
    }
    return reference, gradients


def run(directory, dtype, out):
    reference, gradients = measure(directory, dtype)
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "reference.json", reference)
    write_safetensors(out / "gradients.safetensors", {name: g.numpy() for name, g in gradients.items()})
    return reference


# ---------------------------------------------------------------- cases

# Each reaches what the others do not. "batch" and "tokens" are the shape of tokens.txt, not part of the config.
CASES = {
    # The common shape; n_inner null means 4 n_embd; tied; more positions than tokens.
    "gpt2": dict(batch=2, tokens=13, model_type="gpt2", n_embd=32, n_layer=2, n_head=4, n_inner=None, n_positions=16,
                 vocab_size=53, activation_function="gelu_new", layer_norm_epsilon=1e-5, tie_word_embeddings=True,
                 scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False),
    # No size is a multiple of a SIMD register; own head; scores divided by the depth.
    "gpt2-untied-relu": dict(batch=3, tokens=7, model_type="gpt2", n_embd=33, n_layer=2, n_head=3, n_inner=47,
                             n_positions=11, vocab_size=41, activation_function="relu", layer_norm_epsilon=1e-3,
                             tie_word_embeddings=False, scale_attn_weights=True,
                             scale_attn_by_inverse_layer_idx=True),
    # Grouped queries, heads wider than hidden / heads, own head.
    "llama": dict(batch=2, tokens=11, model_type="llama", hidden_size=36, num_hidden_layers=2, num_attention_heads=6,
                  num_key_value_heads=2, head_dim=10, intermediate_size=52, hidden_act="silu",
                  max_position_embeddings=32, vocab_size=61, rms_norm_eps=1e-6, rope_theta=10000.0,
                  tie_word_embeddings=False, attention_bias=False, mlp_bias=False),
    # Every bias, exact gelu, one sequence, v5's rope_parameters, kv heads and head_dim left to their defaults.
    "llama-tied-bias": dict(batch=1, tokens=17, model_type="llama", hidden_size=32, num_hidden_layers=2,
                            num_attention_heads=4, intermediate_size=56, hidden_act="gelu",
                            max_position_embeddings=32, vocab_size=59, rms_norm_eps=1e-5,
                            rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
                            tie_word_embeddings=True, attention_bias=True, mlp_bias=True),
}
ARCHITECTURE = {"gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM"}


def shapes(config):
    """Name and shape of every parameter, in the order of Hugging Face's state_dict."""
    vocab = config["vocab_size"]
    if config["model_type"] == "gpt2":
        width, inner = config["n_embd"], config["n_inner"] or 4 * config["n_embd"]
        yield "transformer.wte.weight", (vocab, width)
        yield "transformer.wpe.weight", (config["n_positions"], width)
        for l in range(config["n_layer"]):
            sizes = {"ln_1": (width,), "attn.c_attn": (width, 3 * width), "attn.c_proj": (width, width),
                     "ln_2": (width,), "mlp.c_fc": (width, inner), "mlp.c_proj": (inner, width)}
            for name, shape in sizes.items():
                yield f"transformer.h.{l}.{name}.weight", shape
                yield f"transformer.h.{l}.{name}.bias", shape[-1:]
        yield "transformer.ln_f.weight", (width,)
        yield "transformer.ln_f.bias", (width,)
    else:
        width, heads, inner = config["hidden_size"], config["num_attention_heads"], config["intermediate_size"]
        head_dim = config.get("head_dim") or width // heads
        kv = (config.get("num_key_value_heads") or heads) * head_dim
        yield "model.embed_tokens.weight", (vocab, width)
        for l in range(config["num_hidden_layers"]):
            sizes = {"self_attn.q_proj": (heads * head_dim, width), "self_attn.k_proj": (kv, width),
                     "self_attn.v_proj": (kv, width), "self_attn.o_proj": (width, heads * head_dim),
                     "mlp.gate_proj": (inner, width), "mlp.up_proj": (inner, width), "mlp.down_proj": (width, inner)}
            for name, shape in sizes.items():
                yield f"model.layers.{l}.{name}.weight", shape
                if config["attention_bias" if name.startswith("self_attn") else "mlp_bias"]:
                    yield f"model.layers.{l}.{name}.bias", shape[:1]
            yield f"model.layers.{l}.input_layernorm.weight", (width,)
            yield f"model.layers.{l}.post_attention_layernorm.weight", (width,)
        yield "model.norm.weight", (width,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (vocab, width)


def make(directory):
    for seed, (case, settings) in enumerate(CASES.items()):
        settings = dict(settings)
        batch, length = settings.pop("batch"), settings.pop("tokens")
        config = {"architectures": [ARCHITECTURE[settings["model_type"]]], **settings, "torch_dtype": "float32"}
        generator = torch.Generator().manual_seed(20240 + seed)

        def draw(name, shape):
            noise = torch.randn(shape, generator=generator)
            if len(shape) == 2:
                return 0.15 * noise  # far from init's 0.02: no part of the model is negligible
            return 0.1 * noise + (0 if name.endswith(".bias") else 1)

        path = pathlib.Path(directory) / case
        path.mkdir(parents=True, exist_ok=True)
        (path / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        tokens = torch.randint(config["vocab_size"], (batch, length + 1), generator=generator)
        (path / "tokens.txt").write_text("".join(" ".join(map(str, row)) + "\n" for row in tokens.tolist()))
        weights = {name: draw(name, shape).numpy() for name, shape in shapes(config)}
        write_safetensors(path / "model.safetensors", weights)
        reference = run(path, torch.float64, path)
        size = sum(file.stat().st_size for file in path.iterdir())
        print(f"{path}: loss {reference['loss']:.6f}, {len(weights)} parameters, {size / 1024:.0f} KiB")


# ---------------------------------------------------------------- against Hugging Face

# Hugging Face's LLaMA keeps its rotary tables and norms in float32 even in a float64 model, and reference.json
# has nine digits: so "float64" can only be held to float32's rounding of single numbers, "float32" to that of sums.
BOUNDS = {"float64": 1e-6, "float32": 1e-5}


def verify(parity):
    """Compare with the reference.json of Hugging Face's classes; relative errors, but absolute for loss and logits."""
    failed = False
    print(f"{'model':7}{'dtype':9}{'quantity':26}{'entries':>8}{'worst error':>13}{'bound':>9}  at")
    for family in MODELS:
        path = pathlib.Path(parity) / family
        theirs_all = json.loads((path / "reference.json").read_text())
        for dtype, key in (("float64", "float64_model"), ("float32", "float32")):
            ours, _ = measure(path, getattr(torch, dtype))
            theirs, bound = theirs_all[key], BOUNDS[dtype]
            stream = [node for name, node in ours["nodes"].items() if name.startswith("stream.")]
            layers = theirs["residual"]["layers"]
            slice_ours = [row[:8] for row in ours["logits"][0][:4]]
            parameters = ours["parameters"]
            if set(parameters) != set(theirs["param_grad_norm"]):
                sys.exit(f"{path}: parameters {set(parameters) ^ set(theirs['param_grad_norm'])} are on one side only")

            def pairs(name, mine, other):
                if len(mine) != len(other):
                    sys.exit(f"{path}: {name}: {len(mine)} entries here, {len(other)} there")
                return [(f"{name}.{i}", a, b) for i, (a, b) in enumerate(zip(mine, other))]

            total = math.sqrt(sum(p["gradient_norm"] ** 2 for p in parameters.values()))
            checks = [
                ("loss", False, [("loss", ours["loss"], theirs["loss"])]),
                ("logits[0,:4,:8]", False,
                 pairs("logits", sum(slice_ours, []), sum(theirs["logits_slice"], []))),
                ("logits second moment", True,
                 [("logits", ours["nodes"]["logits"]["second_moment"], theirs["logit_m2"])]),
                ("parameter gradient norms", True,
                 [(n, p["gradient_norm"], theirs["param_grad_norm"][n]) for n, p in parameters.items()]
                 + [("all", total, theirs["grad_norm"])]),
                ("stream second moment", True,
                 pairs("stream", [s["second_moment"] for s in stream], layers["m2"])),
                ("stream gradient norm^2", True,
                 pairs("stream", [s["gradient"]["norm"] ** 2 for s in stream], layers["g2"])),
                ("stream token cosine", True,
                 pairs("stream", [s["token_cosine"] for s in stream], layers["cos"])),
                ("attention entropy", True,
                 pairs("blocks", [a["entropy"] for a in ours["attention"].values()],
                       list(theirs["attention_entropy"].values()))),
            ]
            for title, relative, entries in checks:
                errors = [(abs(a - b) / (abs(b) if relative else 1), name) for name, a, b in entries]
                worst, where = max(errors)
                bad = not all(error <= bound for error, _ in errors)
                failed |= bad
                print(f"{family:7}{dtype:9}{title:26}{len(entries):8}{worst:13.1e}{bound:9.0e}  {where}"
                      + ("  FAILED" if bad else ""))
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("make", help="create the cases and their golden numbers").add_argument("directory")
    one = commands.add_parser("run", help="recompute one case")
    one.add_argument("directory")
    one.add_argument("--dtype", choices=["float32", "float64"], default="float64")
    one.add_argument("--out", required=True)
    commands.add_parser("verify", help="compare with Hugging Face's results").add_argument("directory")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # tiny products, and sums in one order
    if arguments.command == "make":
        make(arguments.directory)
    elif arguments.command == "run":
        run(arguments.directory, getattr(torch, arguments.dtype), arguments.out)
    else:
        return verify(arguments.directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
