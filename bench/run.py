#!/usr/bin/python3
"""./dev bench: stepzero against tuned PyTorch and the machine's roof. Ratios in one run; never a bare time.

Each round runs every contestant once, in turn, so that a busy moment of the machine hits all alike; the median of
the rounds is compared."""
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "release"
THREADS = 2


def last_json(command, **env):
    out = subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True, env={**os.environ, **env}).stdout
    return json.loads(out.strip().splitlines()[-1])


def ours(batch, seq, steps):
    return last_json([BUILD / "bench_gpt2", batch, seq, steps, THREADS], OMP_NUM_THREADS=str(THREADS))


def torch(batch, seq, mode, steps):
    return last_json(["/usr/bin/python3", ROOT / "bench" / "torch_gpt2.py", "--batch", batch, "--seq", seq, "--mode", mode,
                      "--steps", steps, "--threads", THREADS])


def median(runs, key):
    return statistics.median(r[key] for r in runs)


def verdict(value, bound):
    return f"{value:.2f} (at most {bound}: {'yes' if value <= bound else 'NO'})"


def gpt2(batch, seq, rounds, steps):
    runs = {"stepzero": [], "plain": [], "hooks": []}
    for _ in range(rounds):
        runs["stepzero"].append(ours(batch, seq, steps))
        runs["plain"].append(torch(batch, seq, "plain", steps))
        runs["hooks"].append(torch(batch, seq, "hooks", steps))
    mine, plain, hooks = (median(runs[k], "median_s") for k in runs)
    bare = median(runs["stepzero"], "plain_median_s")
    products = median(runs["stepzero"], "products_s")
    alone = median(runs["stepzero"], "products_alone_s")
    gflops = median(runs["stepzero"], "product_gflops")
    peak = median(runs["stepzero"], "fma_peak_gflops")
    tokens = batch * seq
    print(f"GPT-2 124M, {batch} x {seq}, forward + backward, {THREADS} threads, median of {rounds} rounds of {steps} steps")
    print(f"  tokens a second: stepzero with all statistics {tokens / mine:.0f}, without {tokens / bare:.0f}; "
          f"PyTorch tuned {tokens / plain:.0f}, with hooks {tokens / hooks:.0f}")
    print(f"  time, ratio to PyTorch without hooks   {verdict(mine / plain, 1.0)}")
    print(f"  time, ratio to PyTorch with hooks      {verdict(mine / hooks, 0.8) if seq == 256 and batch == 1 else f'{mine / hooks:.2f}'}")
    print(f"  statistics, share of the pass          {verdict((mine - bare) / mine, 0.08)}")
    print(f"  products alone / products in the pass  {alone / products:.2f} (at least 0.85: {'yes' if alone / products >= 0.85 else 'NO'})")
    print(f"  products: {gflops:.0f} GFLOP/s, {100 * gflops / peak:.0f} % of the FMA peak; the whole pass: {100 * gflops * products / mine / peak:.0f} %")
    memory = median(runs["stepzero"], "peak_rss_mb") / median(runs["plain"], "peak_rss_mb")
    print(f"  peak memory, ratio to PyTorch          {verdict(memory, 1.0)}\n", flush=True)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for program in ("random", "statistics"):
        print(f"-- {program}", flush=True)
        subprocess.run([BUILD / f"bench_{program}"], check=True)
        print(flush=True)
    gpt2(1, 256, rounds, 5)
    gpt2(4, 256, rounds, 3)


if __name__ == "__main__":
    main()
