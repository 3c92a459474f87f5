#!/usr/bin/python3
"""The opponent of training: torch_gpt2.py's model at any size with torch.optim.AdamW, from given weights on given tokens.

    torch_train.py CONFIG_DIR TOKENS --steps 10 --threads 2 [--models 64]

CONFIG_DIR holds config.json and model.safetensors as `stepzero init` writes them. Prints one JSON line: losses before each update,
median_s an update of one model, peak_rss_mb. With --models so many are trained in turn, all from the same weights.
"""

import argparse
import json
import pathlib
import resource
import statistics
import sys
import time

import torch_gpt2

WARM_UP = 2
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "parity"))


def load(model, path, torch):
    import witness

    stored = witness.read_safetensors(path / "model.safetensors")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = torch.tensor(stored["transformer." + name])
            turned = values.dim() == 2 and not name.startswith(("wte", "wpe"))  # Conv1D stores (in, out)
            parameter.copy_(values.T if turned else values)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("tokens")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--models", type=int, default=1)
    arguments = parser.parse_args()
    arguments_here = sys.argv
    sys.argv = [str(pathlib.Path(__file__).resolve())] + arguments_here[1:]
    torch_gpt2.__file__ = sys.argv[0]  # what starts again is this program
    torch_gpt2.restart_tuned(arguments.threads)

    import torch

    torch.set_num_threads(arguments.threads)
    usual = {"n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}
    config = {**usual, **json.loads((arguments.directory / "config.json").read_text())}
    torch_gpt2.WIDTH, torch_gpt2.LAYERS, torch_gpt2.HEADS = config["n_embd"], config["n_layer"], config["n_head"]
    torch_gpt2.VOCAB, torch_gpt2.POSITIONS = config["vocab_size"], config["n_positions"]
    tokens = torch.tensor([[int(word) for word in line.split()] for line in open(arguments.tokens)])
    ids, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    runs = []
    for _ in range(arguments.models):
        model, step = torch_gpt2.build()
        load(model, arguments.directory, torch)
        runs.append((model, step, torch.optim.AdamW(model.parameters(), lr=arguments.rate, weight_decay=0.0, foreach=True)))
    losses, times = [], []
    for _ in range(arguments.steps):
        start = time.perf_counter()
        for model, step, optimizer in runs:
            loss = step(model, ids, targets)
            optimizer.step()
            value = loss.item()
        times.append((time.perf_counter() - start) / len(runs))
        losses.append(value)
    print(json.dumps({"losses": losses, "median_s": statistics.median(times[WARM_UP:]),
                      "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


if __name__ == "__main__":
    main()
