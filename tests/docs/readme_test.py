#!/usr/bin/env python3
"""Runs every `$ command` of the pages' console blocks (README and docs) and compares what it prints with what they show.

Numbers may differ by 1 % (another CPU rounds differently), words may not. `readme_test.py --write` puts the real output in."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/schemes.md")
BLOCK = re.compile(r"```console\n\$ ([^\n]*)\n(.*?)```", re.S)


def run(command):
    return subprocess.run(command, shell=True, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def same(shown, real):
    a, b = shown.split(), real.split()
    if len(a) != len(b):
        return False
    for x, y in zip(a, b):
        try:
            if abs(float(x) - float(y)) > 0.01 * abs(float(y)):
                return False
        except ValueError:
            if x != y:
                return False
    return True


def main():
    failed = passed = 0
    for page in PAGES:
        path = ROOT / page
        text = path.read_text()
        blocks = BLOCK.findall(text)
        if "--write" in sys.argv:
            path.write_text(BLOCK.sub(lambda m: f"```console\n$ {m[1]}\n{run(m[1])}```", text))
            continue
        for command, shown in blocks:
            real = run(command)
            if same(shown, real):
                passed += 1
                continue
            failed += 1
            print(f"{page} shows another output of: {command}\n--- shown\n{shown}--- real\n{real}")
        if not blocks:
            failed += 1
            print(f"{page} has no console block")
    print(f"{passed} passed, {failed} failed")
    return failed


if __name__ == "__main__":
    sys.exit(main())
