#!/usr/bin/python3
"""The opponent of `init`: PyTorch's normal_, float32 and bfloat16, million a second. Prints one JSON line.

    torch_init.py --threads 2
"""
import argparse
import json
import os
import sys
import time


def rate(torch, dtype, count, rounds):
    x = torch.empty(count, dtype=dtype)
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        x.normal_(0, 0.02)
        best = min(best, time.perf_counter() - start)
    assert abs(x.float().std().item() - 0.02) < 1e-3
    return count / best * 1e-6


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--threads", type=int, default=2)
    threads = arguments.parse_args().threads
    if os.environ.get("OMP_NUM_THREADS") != str(threads):
        os.execve(sys.executable, [sys.executable] + sys.argv, dict(os.environ, OMP_NUM_THREADS=str(threads)))
    import torch
    torch.set_num_threads(threads)
    print(json.dumps({"f32": rate(torch, torch.float32, 1 << 22, 20), "bf16": rate(torch, torch.bfloat16, 1 << 21, 10),
                      "threads": torch.get_num_threads(), "torch": torch.__version__}))


if __name__ == "__main__":
    main()
