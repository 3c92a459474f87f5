#!/usr/bin/env python3
"""Runs every `$ command` of the pages' console blocks (README and docs) and compares what it prints with what they show.

Numbers may differ by 1 % or one in their last digit (another CPU rounds differently) and bars with them, words may not. `readme_test.py --write` puts the
real output in."""
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/schemes.md", "docs/stories.md", "docs/lora.md", "docs/transfer.md", "docs/coord.md", "docs/steps.md")
BARS = re.compile("[\u2581-\u258f]+")
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
BLOCK = re.compile(r"```console\n\$ ([^\n]*)\n(.*?)```", re.S)


def run(command):
    env = {**os.environ, "LC_ALL": "C.UTF-8", "COLUMNS": "80"}
    return subprocess.run(command, shell=True, cwd=ROOT, check=True, capture_output=True, text=True, env=env).stdout


def last_place(text):
    """What one more in the last digit shown is worth."""
    digits, _, exponent = text.partition("e")
    return 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))


def near(x, y):
    rounding = 1.01 * max(last_place(x), last_place(y)) if "." in x + y else 0
    return abs(float(x) - float(y)) <= max(0.01 * abs(float(y)), rounding)


def same_word(x, y):
    """Numbers inside a word ("e^0.29", "0.216,") are numbers too; a checksum is not."""
    if x == y:
        return True
    if len(x) >= 32:
        return False
    return NUMBER.split(x) == NUMBER.split(y) and all(near(a, b) for a, b in zip(NUMBER.findall(x), NUMBER.findall(y)))


def same(shown, real):
    a, b = BARS.sub("", shown).split(), BARS.sub("", real).split()
    return len(a) == len(b) and all(same_word(x, y) for x, y in zip(a, b))


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
