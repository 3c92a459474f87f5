#!/usr/bin/env python3
"""Twenty correct set-ups under `stepzero coord`, each from many first seeds: how often an alarm is raised, and by which rows.

    python3 bench/coord_alarms.py [SEEDS] [PROGRAM]
"""
import collections
import json
import subprocess
import sys

GPT2 = ["gpt2", "--set", "layers=2", "--set", "width=64", "--set", "heads=2", "--set", "vocab=211", "--set", "positions=32"]
UNTIED = [*GPT2, "--set", "tied=false"]
LLAMA = ["llama-2-7b", "--set", "layers=2", "--set", "width=64", "--set", "heads=2", "--set", "ffn=172", "--set", "vocab=211", "--set", "positions=32"]
WIDTHS = ["--widths", "64,128,256"]
DEPTHS = ["--depths", "2,4,8"]
SET_UPS = {
    "gpt2 adamw": [*GPT2, *WIDTHS],
    "gpt2 untied adamw": [*UNTIED, *WIDTHS],
    "gpt2 untied sgd": [*UNTIED, *WIDTHS, "--optimizer", "sgd"],
    "gpt2 untied lion": [*UNTIED, *WIDTHS, "--optimizer", "lion"],
    "gpt2 untied muon": [*UNTIED, *WIDTHS, "--optimizer", "muon"],
    "gpt2 untied muon kimi": [*UNTIED, *WIDTHS, "--optimizer", "muon", "--muon-scale", "kimi"],
    "gpt2 untied muon spectral": [*UNTIED, *WIDTHS, "--optimizer", "muon", "--muon-scale", "spectral", "--newton-schulz", "5"],
    "gpt2 completep": [*GPT2, *WIDTHS, "--parametrization", "completep"],
    "gpt2 depth-mup": [*GPT2, *WIDTHS, "--parametrization", "depth-mup"],
    "gpt2 spectral sgd": [*GPT2, *WIDTHS, "--parametrization", "spectral", "--optimizer", "sgd"],
    "gpt2 zero output and query": [*UNTIED, *WIDTHS, "--zero-output", "--zero-query"],
    "gpt2 with decay": [*UNTIED, *WIDTHS, "--decay", "0.1"],
    "gpt2 larger heads": [*UNTIED, *WIDTHS, "--grow-heads"],
    "gpt2 he": [*UNTIED, *WIDTHS, "--scheme", "he"],
    "llama adamw": [*LLAMA, *WIDTHS],
    "llama one key head": [*LLAMA, "--set", "kv_heads=1", *WIDTHS, "--keep-keys"],
    "llama two sequences, lion": [*LLAMA, *WIDTHS, "--batch", "2", "--optimizer", "lion"],
    "llama u-mup": [*LLAMA, *WIDTHS, "--scheme", "u-mup", "--parametrization", "u-mup"],
    "gpt2 depth completep": [*GPT2, *DEPTHS, "--parametrization", "completep"],
    "gpt2 depth depth-mup": [*GPT2, *DEPTHS, "--parametrization", "depth-mup"],
}


def main():
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    program = sys.argv[2] if len(sys.argv) > 2 else "build/release/stepzero"
    alarms = 0
    for name, words in SET_UPS.items():
        failing = collections.Counter()
        raised = 0
        for k in range(seeds):
            command = [program, "coord", *words, "--seq-len", "32", "--steps", "2", "--seeds", "2", "--seed", str(1000 * k), "--json", "--quiet"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode not in (0, 1):
                sys.exit(done.stderr)
            raised += done.returncode
            for row in json.loads(done.stdout)["rows"]:
                if row["verdict"] == "fail":
                    failing[f"{row['quantity']} {row['what']} step {row['step']}"] += 1
        alarms += raised
        print(f"{name:<28} {raised} of {seeds}   {', '.join(f'{what} ({n})' for what, n in failing.most_common(4))}", flush=True)
    print(f"{alarms} alarms in {len(SET_UPS) * seeds} checks")


if __name__ == "__main__":
    main()
