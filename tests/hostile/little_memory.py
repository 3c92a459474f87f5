#!/usr/bin/env python3
"""No verb hangs where little memory may be reserved (ulimit -v), and --help needs little:

    python3 tests/hostile/little_memory.py PROGRAM
"""
import os
import resource
import subprocess
import sys
import tempfile

program = sys.argv[1]
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])  # what OpenBLAS reserves grows with the cores
folder = tempfile.TemporaryDirectory()
small = ["gpt2", "--set", "layers=1", "--set", "width=32", "--set", "heads=2", "--set", "vocab=64", "--seq-len", "8", "--quiet"]
verbs = [["--help"], ["models"], ["explain", "linear"], ["predict", *small], ["measure", *small],
         ["init", *small[:-3], "--quiet", "-o", folder.name + "/weights.safetensors", "--force"]]
limits = [*range(32, 257, 32), *range(320, 1025, 64)]  # MB
patience = 30  # seconds: far beyond what any of them takes
failed = []


def run(words, megabytes):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))

    try:
        return subprocess.run([program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=patience, preexec_fn=limit)
    except subprocess.TimeoutExpired:
        failed.append(f"{words[0]} hangs with {megabytes} MB")
        return None


for words in verbs:
    least = None
    for megabytes in limits:
        result = run(words, megabytes)
        if result is None:
            continue
        if result.returncode == 0:
            least = least or megabytes
        elif result.returncode not in (2, 127) or not result.stderr.strip():  # refused; the loader has no room for the libraries
            failed.append(f"{words[0]} with {megabytes} MB: code {result.returncode}, {result.stderr.strip()[:200]!r}")
    print(f"{words[0]:8} runs from {least} MB on")
    if least is None:
        failed.append(f"{words[0]} never runs")

alone = subprocess.run([sys.executable, "-c", "import resource, subprocess, sys; subprocess.run([sys.argv[1], '--help'], stdout=subprocess.DEVNULL, check=True);"
                        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)", program], stdout=subprocess.PIPE, text=True, check=True)
kilobytes = int(alone.stdout)
print(f"--help holds {kilobytes / 1024:.1f} MB")
if kilobytes > 20 * 1024:
    failed.append(f"--help holds {kilobytes} kB")
for problem in failed:
    print("FAILED", problem)
sys.exit(1 if failed else 0)
