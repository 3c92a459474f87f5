#!/usr/bin/env python3
"""Takes every validation of the readers out in turn and expects a test to notice.

usage: validations.py READER_TESTS   (the tests of the readers, built with STEPZERO_REMOVABLE_VALIDATIONS)
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parents[2]
names = sorted({name for file in (root / "stepzero/io").iterdir() for name in re.findall(r'rejects\("([a-z0-9.-]+)"', file.read_text())})


def run(without, slow="*S24*:*J7*"):
    environment = dict(os.environ, STEPZERO_WITHOUT=without, GTEST_BRIEF="1", GTEST_FAIL_FAST="1", GTEST_FILTER="-" + slow)
    try:
        done = subprocess.run([sys.argv[1]], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=15,
                              preexec_fn=lambda: __import__("resource").setrlimit(__import__("resource").RLIMIT_AS, (4 << 30, 4 << 30)))
        return done.returncode
    except subprocess.TimeoutExpired:
        return "timeout"


def is_noticed(name):
    return run(name, "*S24*:*J5*:*J7*") != 0 or run(name) != 0


if len(names) < 60:
    sys.exit(f"only {len(names)} validations were found in stepzero/io")
if (code := run("nothing")) != 0:
    sys.exit(f"the tests fail ({code}) with all validations in place")
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    unnoticed = [name for name, noticed in zip(names, pool.map(is_noticed, names)) if not noticed]
for name in unnoticed:
    print(f"no test notices that {name} is gone")
print(f"{len(names) - len(unnoticed)} of {len(names)} validations are missed when they are taken out")
sys.exit(1 if unnoticed else 0)
