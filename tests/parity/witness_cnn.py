#!/usr/bin/python3
"""The independent witness of convolutional networks: torch's own convolutions, poolings and batch norm, and autograd.

    witness_cnn.py make DIR       new cases with their golden numbers, in DIR/<case>/

A case is a directory with config.json (model_type "cnn", docs/models.md), pixels.f32 ([images][colours][height][width]),
labels.txt (a class a line), model.safetensors, and what witness.py describes: gradients.safetensors, reference.json. A node of
images has shape (images, side^2, channels) there, one that is behind them (images, 1, channels).
"""

import json
import pathlib
import sys

import torch
import torch.nn.functional as F

from witness import Trace, describe, write_json, write_safetensors

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh, "gelu": F.gelu}

# Each reaches what the others do not; "images" is not part of the config.
CASES = {
    # LeNet in small: a window that leaves pixels over, maxima, two matrices.
    "cnn-max": dict(images=3, image_size=15, num_channels=1, num_labels=5, stages=[4, 6], kernel_size=4, padding=0,
                    pooling="max", pool_size=2, dense=[11], hidden_act="relu"),
    # Groups, strides, padding, means, batch norm (which leaves biases of convolutions without a gradient).
    "cnn-average": dict(images=2, image_size=14, num_channels=3, num_labels=4, stages=[4, 6], kernel_size=3, stride=2,
                        padding=2, groups=2, pooling="average", pool_size=2, hidden_act="tanh", batch_norm=True,
                        batch_norm_eps=1e-3),
    # Residual blocks, with and without a convolution that leads past them.
    "cnn-residual": dict(images=3, image_size=7, num_channels=2, num_labels=6, stages=[4, 8], blocks_per_stage=2,
                         groups=2, hidden_act="relu", batch_norm=True),
}


class Net:
    """Runs a config; draws the weights it finds missing, so that the same code makes and reads a case."""

    def __init__(self, config, weight, generator=None):
        self.config, self.weight, self.generator, self.trace, self.layer = config, weight, generator, Trace(), 0
        self.act = ACTIVATIONS[config.get("hidden_act", "relu")]
        self.bias = config.get("conv_bias", not config.get("batch_norm", False))
        self.size = config.get("kernel_size", 3)
        self.padding = config.get("padding", self.size // 2)
        self.groups = config.get("groups", 1)

    def parameter(self, name, shape):
        if name not in self.weight:
            noise = torch.randn(shape, generator=self.generator)
            gain = len(shape) == 1 and not name.endswith(".bias")
            self.weight[name] = 1 + 0.1 * noise if gain else (0.1 if len(shape) == 1 else 0.3) * noise
        return self.weight[name]

    def node(self, name, x):
        x.retain_grad()
        self.trace.nodes[name] = x
        return x

    def at(self, name):
        return f"blocks.{self.layer}.{name}"

    def stream(self, x):
        self.layer += 1
        return self.node(f"stream.{self.layer}", x)

    def conv(self, stem, x, out, size, stride, padding, groups):
        w = self.parameter(stem + ".weight", (out, x.shape[1] // groups, size, size))
        b = self.parameter(stem + ".bias", (out,)) if self.bias else None
        return F.conv2d(x, w, b, stride=stride, padding=padding, groups=groups)

    def norm(self, node, stem, x):
        if not self.config.get("batch_norm", False):
            return x
        gain, bias = self.parameter(stem + ".weight", (x.shape[1],)), self.parameter(stem + ".bias", (x.shape[1],))
        eps = self.config.get("batch_norm_eps", 1e-5)
        return self.node(node, F.batch_norm(x, None, None, gain, bias, training=True, eps=eps))

    def linear(self, stem, x, out):
        return F.linear(x, self.parameter(stem + ".weight", (out, x.shape[1])), self.parameter(stem + ".bias", (out,)))

    def plain(self, x):
        self.node("stream.0", x)
        config = self.config
        for s, channels in enumerate(config["stages"]):
            groups = 1 if s == 0 else self.groups
            h = self.conv(f"conv{s + 1}", x, channels, self.size, config.get("stride", 1), self.padding, groups)
            h = self.norm(self.at("norm"), f"bn{s + 1}", self.node(self.at("conv"), h))
            pool = F.max_pool2d if config.get("pooling", "max") == "max" else F.avg_pool2d
            x = self.stream(pool(self.node(self.at("act"), self.act(h)), config.get("pool_size", 2)))
        return self.node("flatten", x.flatten(1))

    def block(self, stem, x, out, stride):
        first = self.node(self.at("act1"), self.act(self.norm(self.at("norm1"), stem + "bn1", x)))
        h = self.conv(stem + "conv1", first, out, self.size, stride, self.padding, self.groups)
        h = self.norm(self.at("norm2"), stem + "bn2", self.node(self.at("conv1"), h))
        h = self.conv(stem + "conv2", self.node(self.at("act2"), self.act(h)), out, self.size, 1, self.padding, self.groups)
        h = self.node(self.at("conv2"), h)
        if stride != 1 or out != x.shape[1]:
            x = self.node(self.at("shortcut"), self.conv(stem + "shortcut", first, out, 1, stride, 0, 1))
        return self.stream(x + h)

    def residual(self, x):
        stages = self.config["stages"]
        x = self.node("stream.0", self.conv("conv1", x, stages[0], self.size, 1, self.padding, 1))
        for s, channels in enumerate(stages):
            for b in range(self.config["blocks_per_stage"]):
                x = self.block(f"layer{s + 1}.{b}.", x, channels, 2 if s > 0 and b == 0 else 1)
        x = self.node("final.act", self.act(self.norm("final.norm", "bn", x)))
        return self.node("final.pool", F.avg_pool2d(x, x.shape[-1])).flatten(1)

    def logits(self, pixels):
        x = self.node("pixels", pixels)
        x = self.residual(x) if self.config.get("blocks_per_stage", 0) > 0 else self.plain(x)
        dense = self.config.get("dense", [])
        for k, width in enumerate(dense):
            x = self.stream(self.act(self.node(self.at("fc"), self.linear(f"fc{k + 1}", x, width))))
        stem = f"fc{len(dense) + 1}" if dense else "fc"
        return self.node("logits", self.linear(stem, x, self.config["num_labels"]))


def rows(x):
    """(images, rows of an image, channels)"""
    return x.flatten(2).transpose(1, 2) if x.dim() == 4 else x[:, None, :]


def make(directory):
    for seed, (case, settings) in enumerate(CASES.items()):
        settings = dict(settings)
        images = settings.pop("images")
        config = {"model_type": "cnn", **settings}
        generator = torch.Generator().manual_seed(31000 + seed)
        side = config["image_size"]
        pixels = torch.randn((images, config["num_channels"], side, side), generator=generator)
        labels = torch.randint(config["num_labels"], (images,), generator=generator)
        drawn = {}
        Net(config, drawn, generator).logits(pixels.clone().requires_grad_(True))

        path = pathlib.Path(directory) / case
        path.mkdir(parents=True, exist_ok=True)
        (path / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        (path / "pixels.f32").write_bytes(pixels.numpy().astype("<f4").tobytes())
        (path / "labels.txt").write_text("".join(f"{label}\n" for label in labels.tolist()))
        write_safetensors(path / "model.safetensors", {name: w.numpy() for name, w in drawn.items()})

        weight = {name: w.double().requires_grad_(True) for name, w in drawn.items()}
        net = Net(config, weight)
        logits = net.logits(pixels.double().requires_grad_(True))
        loss = F.cross_entropy(logits, labels)
        loss.backward()
        nodes = {name: describe(rows(x.detach()), rows(x.grad)) for name, x in net.trace.nodes.items()}
        reference = {"model_type": "cnn", "dtype": "float64", "torch": torch.__version__, "loss": loss.item(), "nodes": nodes,
                     "attention": {}, "logits": logits[:, None, :].tolist()}
        write_json(path / "reference.json", reference)
        write_safetensors(path / "gradients.safetensors", {name: w.grad.numpy() for name, w in weight.items()})
        size = sum(file.stat().st_size for file in path.iterdir())
        print(f"{path}: loss {loss.item():.6f}, {len(weight)} parameters, {size / 1024:.0f} KiB")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] != "make":
        sys.exit(__doc__)
    make(sys.argv[2])
