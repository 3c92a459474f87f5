"""A small GPT whose author meant to divide what writes to the stream by sqrt(2 layers), and a line that tells that it did not happen.

    PYTHONPATH=python python3 examples/python/check_init.py
"""
import math

import torch
from torch import nn

import stepzero.torch as szt

LAYERS, WIDTH = 4, 128


def block():
    return nn.ModuleDict({
        "ln_1": nn.LayerNorm(WIDTH), "attn": nn.ModuleDict({"c_attn": nn.Linear(WIDTH, 3 * WIDTH), "c_proj": nn.Linear(WIDTH, WIDTH)}),
        "ln_2": nn.LayerNorm(WIDTH), "mlp": nn.ModuleDict({"c_fc": nn.Linear(WIDTH, 4 * WIDTH), "c_proj": nn.Linear(4 * WIDTH, WIDTH)})})


model = nn.ModuleDict({"wte": nn.Embedding(500, WIDTH), "wpe": nn.Embedding(64, WIDTH), "h": nn.ModuleList(block() for _ in range(LAYERS)),
                       "ln_f": nn.LayerNorm(WIDTH), "lm_head": nn.Linear(WIDTH, 500, bias=False)})

torch.manual_seed(0)
for name, p in model.named_parameters():
    if p.dim() == 2:
        nn.init.normal_(p, std=0.02)
    elif name.endswith("bias"):
        nn.init.zeros_(p)
    if name.endswith("c_proj.weights"):  # there is no such name
        nn.init.normal_(p, std=0.02 / math.sqrt(2 * LAYERS))

try:
    szt.check(model, expect="scheme:gpt2")
except AssertionError as error:
    print(error)
