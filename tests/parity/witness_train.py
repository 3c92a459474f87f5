#!/usr/bin/python3
"""The witness of training: five families in elementary PyTorch, ten updates by torch.optim (Lion and Muon written out here).

    witness_train.py make DIR [CASE...]       DIR/<case>/: a model, its input, and every tensor after ten updates
    witness_train.py losses DIR/<case> STEPS  the loss before each of so many updates by AdamW, one a line
    witness_train.py verify PARITY_DIR        the models of this file against what Hugging Face's own classes gave

A case is a directory as in witness.py, and for each optimizer
    after-<name>.safetensors   F64: every tensor after ten updates in float64, all from the same batch; NaN where a gradient was
                               rounding noise (biases of keys, the router's rows of experts that no token chose), of which the
                               sign means nothing
    optimizers.json            what each name means, as stepzero train has it: {"adamw": {"optimizer": "adamw", "rate": 0.01, ...}}
    rounding.json              how far the same in float32 is off: {"adamw": {tensor: ||float32 - float64|| / ||change||}}

Muon is for matrices as they are stored; embeddings, heads and vectors are AdamW's. A tensor without a gradient (an expert that no
token chose) is left as it is.
"""

import argparse
import json
import math
import pathlib
import sys

import numpy as np
import torch

import witness
from witness import ACTIVATIONS, layer_norm, rms_norm, rotate


class Weights(dict):
    """Tensors under their names; one that is not there is drawn, so that a model is its own list of shapes."""

    def __init__(self, stored=None, seed=0, dtype=torch.float64):
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)
        self.stored = stored
        for name, values in (stored or {}).items():
            self[name] = torch.tensor(values, dtype=dtype, requires_grad=True)

    def get(self, name, *shape):
        if name not in self:
            if self.stored is not None:
                sys.exit(f"no tensor {name}")
            noise = torch.randn(shape, generator=self.generator)
            values = 0.15 * noise if len(shape) > 1 else 0.1 * noise + (0 if name.endswith(("bias", "token")) else 1)
            self[name] = values.float().double().requires_grad_(True)
        return self[name]

    def linear(self, x, name, out, bias=True):
        y = x @ self.get(name + ".weight", out, x.shape[-1]).T
        return y + self.get(name + ".bias", out) if bias else y

    def norm(self, x, name, eps):
        width = x.shape[-1]
        return layer_norm(x, self.get(name + ".weight", width), self.get(name + ".bias", width), eps)


def attend(q, k, v, heads, causal):
    """q (B, T, heads D), k and v with as many or fewer heads of the same size."""
    size = q.shape[-1] // heads
    q, k, v = (x.unflatten(-1, (-1, size)).transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    scores = q @ k.transpose(2, 3) / math.sqrt(size)
    if causal:
        visible = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~visible, -math.inf)
    return (torch.softmax(scores, -1) @ v).transpose(1, 2).flatten(2)


def bert(config, w, ids):
    width, act, eps = config["hidden_size"], ACTIVATIONS[config["hidden_act"]], config["layer_norm_eps"]
    table = w.get("bert.embeddings.word_embeddings.weight", config["vocab_size"], width)
    x = table[ids] + w.get("bert.embeddings.position_embeddings.weight", config["max_position_embeddings"], width)[: ids.shape[1]]
    x = x + w.get("bert.embeddings.token_type_embeddings.weight", config["type_vocab_size"], width)[0]
    x = w.norm(x, "bert.embeddings.LayerNorm", eps)
    for l in range(config["num_hidden_layers"]):
        p = f"bert.encoder.layer.{l}."
        q, k, v = (w.linear(x, f"{p}attention.self.{part}", width) for part in ("query", "key", "value"))
        x = w.norm(x + w.linear(attend(q, k, v, config["num_attention_heads"], False), p + "attention.output.dense", width),
                   p + "attention.output.LayerNorm", eps)
        h = act(w.linear(x, p + "intermediate.dense", config["intermediate_size"]))
        x = w.norm(x + w.linear(h, p + "output.dense", width), p + "output.LayerNorm", eps)
    h = w.norm(act(w.linear(x, "cls.predictions.transform.dense", width)), "cls.predictions.transform.LayerNorm", eps)
    return h @ table.T + w.get("cls.predictions.bias", config["vocab_size"])


def vit(config, w, pixels):
    width, patch, eps = config["hidden_size"], config["patch_size"], config["layer_norm_eps"]
    act, classes = ACTIVATIONS[config["hidden_act"]], len(config["id2label"])
    kernel = w.get("vit.embeddings.patch_embeddings.projection.weight", width, config["num_channels"], patch, patch)
    bias = w.get("vit.embeddings.patch_embeddings.projection.bias", width)
    x = torch.nn.functional.conv2d(pixels, kernel, bias, stride=patch).flatten(2).transpose(1, 2)
    x = torch.cat([w.get("vit.embeddings.cls_token", 1, 1, width).expand(x.shape[0], 1, width), x], 1)
    x = x + w.get("vit.embeddings.position_embeddings", 1, x.shape[1], width)
    for l in range(config["num_hidden_layers"]):
        p = f"vit.encoder.layer.{l}."
        h = w.norm(x, p + "layernorm_before", eps)
        q, k, v = (w.linear(h, f"{p}attention.attention.{part}", width) for part in ("query", "key", "value"))
        x = x + w.linear(attend(q, k, v, config["num_attention_heads"], False), p + "attention.output.dense", width)
        h = act(w.linear(w.norm(x, p + "layernorm_after", eps), p + "intermediate.dense", config["intermediate_size"]))
        x = x + w.linear(h, p + "output.dense", width)
    return w.linear(w.norm(x, "vit.layernorm", eps)[:, :1], "classifier", classes)


def mixtral(config, w, ids):
    width, heads, kv = config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"]
    size, eps = width // heads, config["rms_norm_eps"]

    def rms(x, name):
        return rms_norm(x, w.get(name + ".weight", width), eps)

    def turn(x):
        return rotate(x.unflatten(-1, (-1, size)), config["rope_theta"]).flatten(2)

    x = w.get("model.embed_tokens.weight", config["vocab_size"], width)[ids]
    for l in range(config["num_hidden_layers"]):
        p = f"model.layers.{l}."
        h = rms(x, p + "input_layernorm")
        q = turn(w.linear(h, p + "self_attn.q_proj", width, False))
        k = turn(w.linear(h, p + "self_attn.k_proj", kv * size, False))
        v = w.linear(h, p + "self_attn.v_proj", kv * size, False)
        x = x + w.linear(attend(q, k, v, heads, True), p + "self_attn.o_proj", width, False)
        h = rms(x, p + "post_attention_layernorm").flatten(0, 1)
        scores = w.linear(h, p + "block_sparse_moe.gate", config["num_local_experts"], False)
        best, chosen = scores.topk(config["num_experts_per_tok"], -1)
        best = torch.softmax(best, -1)  # the softmax of all, shared out anew among the chosen: but here no other score has a gradient
        out = torch.zeros_like(h)
        for e in range(config["num_local_experts"]):
            name = f"{p}block_sparse_moe.experts.{e}."
            sizes = {"w1": (config["intermediate_size"], width), "w2": (width, config["intermediate_size"]),
                     "w3": (config["intermediate_size"], width)}
            w1, w2, w3 = (w.get(f"{name}{part}.weight", *shape) for part, shape in sizes.items())
            token, slot = (chosen == e).nonzero(as_tuple=True)
            if len(token):
                inner = ACTIVATIONS["silu"](h[token] @ w1.T) * (h[token] @ w3.T)
                out = out.index_add(0, token, best[token, slot, None] * (inner @ w2.T))
        x = x + out.unflatten(0, x.shape[:2])
    return w.linear(rms(x, "model.norm"), "lm_head", config["vocab_size"], False)


def traced(model):
    return lambda config, w, ids: model(config, w, ids, witness.Trace())


MODELS = {"gpt2": traced(witness.gpt2), "llama": traced(witness.llama), "bert": bert, "vit": vit, "mixtral": mixtral}

# ---------------------------------------------------------------- optimizers


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                first, second = group["betas"]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(group["lr"] * torch.sign(first * m + (1 - first) * p.grad))
                m.mul_(second).add_((1 - second) * p.grad)


def polar(g):
    u, s, v = torch.linalg.svd(g, full_matrices=False)
    keep = s > 1e-6 * s[0]
    return u[:, keep] @ v[keep]


def newton_schulz(g, steps):
    x = g / (g.norm() + 1e-7)
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    for _ in range(steps):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.T if tall else x


class Muon(torch.optim.Optimizer):
    """`scale` of each tensor stands in its group."""

    def __init__(self, groups, lr, momentum, nesterov, steps, weight_decay):
        super().__init__(groups, dict(lr=lr, momentum=momentum, nesterov=nesterov, steps=steps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                b = self.state[p].setdefault("b", torch.zeros_like(p))
                b.mul_(group["momentum"]).add_(p.grad)
                u = (p.grad + group["momentum"] * b if group["nesterov"] else b)
                q = newton_schulz(u, group["steps"]) if group["steps"] else polar(u)
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(group["lr"] * group["scale"] * q)


OPTIMIZERS = {
    "sgd": dict(optimizer="sgd", rate=0.05),
    "momentum": dict(optimizer="sgd", rate=0.02, momentum=0.9, nesterov=False),
    "nesterov": dict(optimizer="sgd", rate=0.02, momentum=0.9, nesterov=True),
    "adam": dict(optimizer="adamw", rate=0.003, betas=[0.9, 0.999]),
    "adamw": dict(optimizer="adamw", rate=0.003, betas=[0.9, 0.95], decay=0.1, clip=0.5),
    "lion": dict(optimizer="lion", rate=0.001, betas=[0.9, 0.99], decay=0.1),
    "muon": dict(optimizer="muon", rate=0.01, rate_adamw=0.003, momentum=0.95, scale="max1", newton_schulz=0),
    "muon-five": dict(optimizer="muon", rate=0.003, rate_adamw=0.003, momentum=0.95, nesterov=True, scale="kimi", newton_schulz=5, decay=0.1),
}


def is_hidden(name, p):
    return p.dim() == 2 and not any(word in name for word in ("embed", "wte", "wpe", "lm_head", "classifier"))


def muon_scale(kind, name, p):
    first, second = p.shape
    into, out = (first, second) if ".h." in name else (second, first)  # GPT-2 stores (in, out)
    return {"max1": math.sqrt(max(1, out / into)), "kimi": 0.2 * math.sqrt(max(into, out)), "spectral": math.sqrt(out / into)}[kind]


def make_optimizers(w, o):
    decay = o.get("decay", 0.0)
    everything = list(w.values())
    if o["optimizer"] == "sgd":
        return [torch.optim.SGD(everything, lr=o["rate"], momentum=o.get("momentum", 0), nesterov=o.get("nesterov", False))]
    if o["optimizer"] == "lion":
        return [Lion(everything, o["rate"], o["betas"], decay)]
    if o["optimizer"] == "adamw":
        make = torch.optim.AdamW if decay else torch.optim.Adam
        return [make(everything, lr=o["rate"], betas=o["betas"], **({"weight_decay": decay} if decay else {}))]
    hidden = [dict(params=[p], scale=muon_scale(o["scale"], name, p)) for name, p in w.items() if is_hidden(name, p)]
    others = [p for name, p in w.items() if not is_hidden(name, p)]
    return [Muon(hidden, o["rate"], o["momentum"], o.get("nesterov", False), o["newton_schulz"], decay),
            torch.optim.AdamW(others, lr=o["rate_adamw"], weight_decay=decay)]


# ---------------------------------------------------------------- cases

CASES = {
    "gpt2": dict(model_type="gpt2", n_embd=12, n_layer=1, n_head=2, n_inner=20, n_positions=9, vocab_size=23,
                 activation_function="gelu_new", layer_norm_epsilon=1e-5, tie_word_embeddings=True),
    "llama": dict(model_type="llama", hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                  intermediate_size=28, hidden_act="silu", max_position_embeddings=16, vocab_size=29, rms_norm_eps=1e-6,
                  rope_theta=10000.0, tie_word_embeddings=False, attention_bias=False, mlp_bias=False),
    "bert": dict(model_type="bert", hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
                 hidden_act="gelu", max_position_embeddings=16, vocab_size=31, layer_norm_eps=1e-12, type_vocab_size=2,
                 pad_token_id=0),
    "vit": dict(model_type="vit", hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
                hidden_act="gelu", image_size=12, patch_size=4, num_channels=3, layer_norm_eps=1e-12, qkv_bias=True,
                id2label={str(i): f"LABEL_{i}" for i in range(5)}),
    "mixtral": dict(model_type="mixtral", hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                    intermediate_size=20, hidden_act="silu", max_position_embeddings=16, vocab_size=29, rms_norm_eps=1e-5,
                    rope_theta=1000000.0, num_local_experts=8, num_experts_per_tok=2, tie_word_embeddings=False),
}
LENGTH = 8


def write_f64(path, tensors):
    header, data, at = {}, [], 0
    for name in sorted(tensors):
        raw = np.ascontiguousarray(tensors[name], "<f8").tobytes()
        header[name] = {"dtype": "F64", "shape": list(tensors[name].shape), "data_offsets": [at, at + len(raw)]}
        data.append(raw)
        at += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(len(text).to_bytes(8, "little") + text + b"".join(data))


def read_case(path):
    """The loss of a case as a function of its weights."""
    config = json.loads((path / "config.json").read_text())
    model = MODELS[config["model_type"]]
    if config["model_type"] == "vit":
        size, colours = config["image_size"], config["num_channels"]
        pixels = np.fromfile(path / "pixels.f32", "<f4").reshape(-1, colours, size, size)
        inputs = torch.tensor(pixels)
        targets = torch.tensor([int(word) for word in (path / "labels.txt").read_text().split()])[:, None]
    else:
        tokens = witness.read_tokens(path / "tokens.txt")
        inputs = tokens[:, :-1]
        targets = inputs if config["model_type"] == "bert" else tokens[:, 1:]

    def loss(w):
        dtype = next(iter(w.values())).dtype if w else torch.float64
        logits = model(config, w, inputs.to(dtype) if inputs.is_floating_point() else inputs)
        return (torch.logsumexp(logits, -1) - logits.gather(-1, targets[..., None])[..., 0]).mean()

    return loss


def train(loss, w, options, steps):
    """The loss before each update, and behind the last one."""
    losses, optimizers = [], make_optimizers(w, options)
    for p in w.values():
        p.noise = torch.zeros_like(p, dtype=torch.bool)
    for step in range(steps + 1):
        for p in w.values():
            p.grad = None
        value = loss(w)
        losses.append(value.item())
        if step == steps:
            return losses
        value.backward()
        largest = max(p.grad.abs().max().item() for p in w.values() if p.grad is not None)
        for p in w.values():
            if p.grad is not None:
                p.noise |= (p.grad != 0) & (p.grad.abs() < 1e-12 * largest)
        if options.get("clip"):
            torch.nn.utils.clip_grad_norm_(list(w.values()), options["clip"])
        for optimizer in optimizers:
            optimizer.step()


def relative(difference, change):
    return (difference.norm() / change.norm()).item() if difference.norm() > 0 else 0.0


def make(directory, names):
    for seed, (case, settings) in enumerate(CASES.items()):
        if names and case not in names:
            continue
        path = pathlib.Path(directory) / case
        path.mkdir(parents=True, exist_ok=True)
        generator = torch.Generator().manual_seed(300 + seed)
        (path / "config.json").write_text(json.dumps({**settings, "torch_dtype": "float32"}, indent=2) + "\n")
        if case == "vit":
            shape = (3, settings["num_channels"], settings["image_size"], settings["image_size"])
            torch.randn(shape, generator=generator).numpy().astype("<f4").tofile(path / "pixels.f32")
            (path / "labels.txt").write_text("".join(f"{c}\n" for c in torch.randint(5, (3,), generator=generator).tolist()))
        else:
            tokens = torch.randint(1, settings["vocab_size"], (2, LENGTH + 1), generator=generator)
            (path / "tokens.txt").write_text("".join(" ".join(map(str, row)) + "\n" for row in tokens.tolist()))
        loss = read_case(path)
        start = Weights(seed=seed)
        if case in witness.MODELS:
            for name, shape in witness.shapes({"n_inner": None, **settings}):
                start.get(name, *shape)
        loss(start)  # draws what is not there yet
        stored = {name: p.detach().numpy().astype("<f4") for name, p in start.items()}
        witness.write_safetensors(path / "model.safetensors", stored)
        (path / "optimizers.json").write_text(json.dumps(OPTIMIZERS, indent=1) + "\n")
        rounding = {}
        for name, options in OPTIMIZERS.items():
            w, single = Weights(stored), Weights(stored, dtype=torch.float32)
            losses = train(loss, w, options, 10)
            train(loss, single, options, 10)
            rounding[name] = {}
            for k, p in w.items():
                known = ~p.noise
                difference, change = single[k].detach().double() - p.detach(), p.detach() - torch.tensor(stored[k])
                rounding[name][k] = relative(difference[known], change[known])
            write_f64(path / f"after-{name}.safetensors", {k: p.detach().masked_fill(p.noise, math.nan).numpy() for k, p in w.items()})
            print(f"{path}: {name}: loss {losses[0]:.6f} to {losses[-1]:.6f}, float32 off by {max(rounding[name].values()):.1e}")
        (path / "rounding.json").write_text(json.dumps(rounding, indent=1) + "\n")


def verify(parity):
    failed = False
    for family in MODELS:
        path = pathlib.Path(parity) / family
        reference = json.loads((path / "reference.json").read_text())["float64_model"]
        w = Weights(witness.read_safetensors(path / "model.safetensors"))
        value = read_case(path)(w)
        value.backward()
        norm = math.sqrt(sum((p.grad**2).sum().item() for p in w.values() if p.grad is not None))
        errors = abs(value.item() - reference["loss"]), abs(norm / reference["grad_norm"] - 1)
        bad = not all(error < 1e-6 for error in errors)
        failed |= bad
        print(f"{family:8} loss {errors[0]:.1e} gradient norm {errors[1]:.1e}{'  FAILED' if bad else ''}")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("make")
    one.add_argument("directory")
    one.add_argument("cases", nargs="*")
    one = commands.add_parser("losses")
    one.add_argument("directory")
    one.add_argument("steps", type=int)
    commands.add_parser("verify").add_argument("directory")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.command == "make":
        make(arguments.directory, arguments.cases)
    elif arguments.command == "losses":
        path = pathlib.Path(arguments.directory)
        w = Weights(witness.read_safetensors(path / "model.safetensors"))
        print("\n".join(f"{x!r}" for x in train(read_case(path), w, OPTIMIZERS["adam"], arguments.steps)))
    else:
        return verify(arguments.directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
