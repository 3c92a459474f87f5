#!/usr/bin/python3
"""The opponent: GPT-2 124M in PyTorch, forward and backward in float32 on the CPU, as fast as we could make it.

    torch_gpt2.py --batch 1 --seq 256 --mode plain --steps 5 --threads 2

Prints one JSON line: mode, batch, seq, steps, threads, best_s, median_s (seconds a step), tokens_per_s (at the best
step), peak_rss_mb, loss, blas (the library the products really ran in).

plain   loss and all parameter gradients, nothing observed
hooks   what a PyTorch user does to see inside: the standard deviation of every module's output, of the gradient
        arriving at it, and of every parameter's gradient. It still sees no q, k, v, score or mid-block residual.

It starts itself again with the environment that makes Debian's build fast: one OpenMP runtime for torch and
OpenBLAS, and an allocator that keeps its pages. Alternatives timed on a machine that was not quiet, so rough. In
alternating steps (1x256 best of 10, 4x256 best of 4): attention by matmul or F._scaled_dot_product_attention and
Hugging Face's Conv1D stay within 6 % either way, oneDNN's linear (to_mkldnn, with its copies) is 2 % and 14 % slower.
zero_grad(set_to_none=False): undecided (1 % faster in alternating steps, -18 to +19 % in separate runs). Huge pages,
separate runs only: no gain seen. When other programs hold a core, spinning barriers make it 4 times slower;
GOMP_SPINCOUNT=0 is then the fairer setting.
"""

import argparse
import glob
import json
import os
import resource
import statistics
import sys
import time

WIDTH, LAYERS, HEADS, VOCAB, POSITIONS = 768, 12, 12, 50257, 1024
WARM_UP = 2


def restart_tuned(threads):
    """Replace this process by one with the tuned environment; returns when it is already that one."""
    if os.environ.get("STEPZERO_TORCH_TUNED") == "1":
        return
    environment = dict(os.environ, STEPZERO_TORCH_TUNED="1", OMP_NUM_THREADS=str(threads), MALLOC_MMAP_MAX_="0",
                       MALLOC_TRIM_THRESHOLD_="100000000000")
    # Debian's OpenBLAS takes a processor younger than itself for the oldest one, and is four times slower there
    with open("/proc/cpuinfo") as file:
        flags = next((line.split() for line in file if line.startswith("flags")), [])
    core = "SkylakeX" if "avx512vl" in flags else "Haswell" if "avx2" in flags else None
    if core:
        environment.setdefault("OPENBLAS_CORETYPE", core)
    found = sorted(glob.glob("/usr/lib/*-linux-gnu*/openblas-openmp/libblas.so.3"))
    if found:
        paths = [os.path.dirname(found[0]), environment.get("LD_LIBRARY_PATH", "")]
        environment["LD_LIBRARY_PATH"] = ":".join(path for path in paths if path)
    else:
        print("torch_gpt2.py: no OpenMP build of OpenBLAS found, PyTorch runs slower than it can\n"
              "hint: apt install libopenblas0-openmp", file=sys.stderr)
    os.execve(sys.executable, [sys.executable, os.path.abspath(__file__)] + sys.argv[1:], environment)


def build():
    import torch
    import torch.nn.functional as F
    from torch import nn

    class Attention(nn.Module):
        def __init__(self, mask):
            super().__init__()
            self.c_attn = nn.Linear(WIDTH, 3 * WIDTH)
            self.c_proj = nn.Linear(WIDTH, WIDTH)
            self.register_buffer("mask", mask, persistent=False)

        def forward(self, x):
            batch, length, _ = x.shape
            size = WIDTH // HEADS
            qkv = self.c_attn(x).view(batch, length, 3, HEADS, size).permute(2, 0, 3, 1, 4)
            q, k, v = qkv.reshape(3, batch * HEADS, length, size).unbind(0)
            # Scale and mask ride along in the product.
            scores = torch.baddbmm(self.mask[:length, :length], q, k.transpose(1, 2), beta=1, alpha=size**-0.5)
            mix = torch.bmm(torch.softmax(scores, -1), v).view(batch, HEADS, length, size)
            return self.c_proj(mix.transpose(1, 2).reshape(batch, length, WIDTH))

    class FeedForward(nn.Module):
        def __init__(self):
            super().__init__()
            self.c_fc = nn.Linear(WIDTH, 4 * WIDTH)
            self.act = nn.GELU(approximate="tanh")
            self.c_proj = nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x):
            return self.c_proj(self.act(self.c_fc(x)))

    class Block(nn.Module):
        def __init__(self, mask):
            super().__init__()
            self.ln_1, self.attn = nn.LayerNorm(WIDTH), Attention(mask)
            self.ln_2, self.mlp = nn.LayerNorm(WIDTH), FeedForward()

        def forward(self, x):
            x = x + self.attn(self.ln_1(x))
            return x + self.mlp(self.ln_2(x))

    class Gpt2(nn.Module):
        def __init__(self):
            super().__init__()
            mask = torch.full((POSITIONS, POSITIONS), -float("inf")).triu(1)
            self.wte, self.wpe = nn.Embedding(VOCAB, WIDTH), nn.Embedding(POSITIONS, WIDTH)
            self.h = nn.ModuleList(Block(mask) for _ in range(LAYERS))
            self.ln_f = nn.LayerNorm(WIDTH)
            self.lm_head = nn.Linear(WIDTH, VOCAB, bias=False)
            self.lm_head.weight = self.wte.weight
            for name, parameter in self.named_parameters():
                if parameter.dim() == 2:
                    depth = (2 * LAYERS) ** -0.5 if name.endswith("c_proj.weight") else 1.0
                    nn.init.normal_(parameter, std=0.02 * depth)
                elif name.endswith("bias"):
                    nn.init.zeros_(parameter)

        def forward(self, ids):
            x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
            for block in self.h:
                x = block(x)
            return self.lm_head(self.ln_f(x))

    def step(model, ids, targets):
        model.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(ids).view(-1, VOCAB), targets.view(-1))
        loss.backward()
        return loss

    return Gpt2(), step


def watch(model, record):
    """Hooks that put the standard deviation of everything they are shown into record."""

    def forward(name):
        def hook(module, inputs, output):
            record["out " + name] = float(output.std())
        return hook

    def backward(name):
        def hook(module, grad_input, grad_output):
            record["grad " + name] = float(grad_output[0].std())
        return hook

    def parameter_gradient(name):
        def hook(gradient):
            record["param " + name] = float(gradient.std())
        return hook

    for name, module in model.named_modules():
        module.register_forward_hook(forward(name))
        module.register_full_backward_hook(backward(name))
    for name, parameter in model.named_parameters():
        parameter.register_hook(parameter_gradient(name))


def loaded_blas():
    with open("/proc/self/maps") as maps:
        files = {line.split()[-1] for line in maps if "blas" in line.rsplit("/", 1)[-1] and "nvblas" not in line}
    return sorted({os.path.realpath(file) for file in files})


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--seq", type=int, default=256, help=f"at most {POSITIONS}")
    parser.add_argument("--mode", choices=["plain", "hooks"], default="plain")
    parser.add_argument("--steps", type=int, default=5, help=f"timed steps, after {WARM_UP} to warm up")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    if min(arguments.batch, arguments.seq, arguments.steps, arguments.threads) < 1 or arguments.seq > POSITIONS:
        parser.error(f"batch, steps and threads start at 1, seq is 1 to {POSITIONS}")
    restart_tuned(arguments.threads)

    import torch

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    model, step = build()
    record = {}
    if arguments.mode == "hooks":
        watch(model, record)
    ids, targets = torch.randint(VOCAB, (2, arguments.batch, arguments.seq)).unbind(0)

    times = []
    for _ in range(WARM_UP + arguments.steps):
        start = time.perf_counter()
        loss = step(model, ids, targets)
        times.append(time.perf_counter() - start)
    times = times[WARM_UP:]
    result = {
        "mode": arguments.mode,
        "batch": arguments.batch,
        "seq": arguments.seq,
        "steps": arguments.steps,
        "threads": arguments.threads,
        "best_s": round(min(times), 4),
        "median_s": round(statistics.median(times), 4),
        "tokens_per_s": round(arguments.batch * arguments.seq / min(times), 1),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "loss": round(loss.item(), 5),
        "blas": loaded_blas(),
    }
    if record:
        result["recorded"] = len(record)
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
