#!/usr/bin/env python3
"""Promises under fault: what is written is OLD or NEW, whatever fails. Prints the tables of docs/reliability.md; exit code 1 where a promise is broken.

    python3 tests/faults/run.py PROGRAM [--few] [--parts calls,kills,cuts,memory,mutants] [--work NAME...] [--seed N] [--requests N]

--few: a minute's worth, the same in every run, for ./dev test.
"""
import argparse
import collections
import pathlib
import random
import subprocess
import sys
import time

import allocations
import ends
import kills
import mutants
import power_cuts
import system_calls
from work import WORKS, Case, Program

ROOT = pathlib.Path(__file__).resolve().parents[2]
PARTS = {"mutants": "", "calls": "System calls that fail", "kills": "kill -9", "cuts": "Power cuts", "memory": "Requests for memory that fail"}


def table(title, rows):
    keys = list(dict.fromkeys(key for _, count in rows for key in count))
    print(f"\n{title}\n\n| | {' | '.join(keys)} |\n|{'---|' * (len(keys) + 1)}")
    for name, count in [*rows, ("together", sum((count for _, count in rows), collections.Counter()))]:
        print(f"| {name} | {' | '.join(format(count[key], ',') for key in keys)} |")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--few", action="store_true")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--work", nargs="*", default=[])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--requests", type=int, default=400, help="of each verb; of one that makes millions a tenth")
    parser.add_argument("--folder", default="", help="where the work is done, if several run at once")
    flags = parser.parse_args()
    folder = ROOT / "build" / "faults" / (flags.folder or ("few" if flags.few else "all"))
    folder.mkdir(parents=True, exist_ok=True)
    shim, log = str(folder / "shim.so"), folder / "log"
    subprocess.run(["gcc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", shim, str(pathlib.Path(__file__).with_name("shim.c"))], check=True)
    program = Program(flags.program)
    works = [work for work in WORKS if not flags.work or work.name in flags.work]
    broken = []

    def few_calls(cases):
        """Those after main that touch files, some of each kind."""
        kinds = {"pwrite64", "write", "fsync", "ftruncate", "fallocate", "renameat", "renameat2", "short write"}
        return random.Random(1).sample([case for case in cases if case[0] in kinds and case[3]], 12)

    def part(name, run, over):
        if name not in flags.parts.split(",") or not over:
            return
        start, rows = time.monotonic(), []
        for work in over:
            count, wrong = run(work)
            rows.append((work.name, count + collections.Counter(violations=len(wrong))))
            rows[-1][1].setdefault("violations", 0)
            broken.extend(wrong)
            for problem in wrong[:20]:
                print("VIOLATION", problem, file=sys.stderr, flush=True)
        table(f"{PARTS[name]} ({time.monotonic() - start:.0f} s)", rows)

    def case(work):
        return Case(program, work, folder / "work")

    if "mutants" in flags.parts.split(","):
        wrong = mutants.run(case(WORKS[1]), shim, log) + ends.run(case(WORKS[0]), log)
        broken.extend(wrong)
        print("\n".join(wrong) or f"each of {len(mutants.MUTANTS)} mutants is caught; signals and closed streams leave nothing", flush=True)
    share = 1700  # 20,000 and more in all
    part("calls", lambda work: system_calls.run(case(work), shim, log, few_calls if flags.few else list), works)
    part("kills", lambda work: kills.run(case(work), -(-2000 // len(works)), flags.seed), [] if flags.few else works)
    part("cuts", lambda work: power_cuts.run(case(work), log, 200 if flags.few else share, flags.seed), works)
    part("memory", lambda verb: allocations.run(verb, program, folder, shim, flags.requests, flags.seed), [] if flags.few else allocations.VERBS)
    print(f"\n{len(broken)} violations")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
