#!/usr/bin/env python3
"""An architecture file means the same to the program and to Python: every file that is shipped, and every model that describe prints.

    python3 tests/architectures/python_test.py STEPZERO

STEPZERO is the program. Both make the canonical graph, and the two are compared whole."""
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
from stepzero import arch  # noqa: E402

PROGRAM = sys.argv[1] if len(sys.argv) > 1 else sys.exit(__doc__)


def run(*words):
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


def differ(one, other):
    for part in ("tensors", "nodes"):
        if len(one[part]) != len(other[part]):
            return f"{len(one[part])} {part} against {len(other[part])}"
        for a, b in zip(one[part], other[part]):
            if a != b:
                return f"{a}\n  against\n  {b}"
    for key in ("schema", "name", "positions", "init_std"):
        if one[key] != other[key]:
            return f"{key}: {one[key]} against {other[key]}"
    return None


def check(what, text, of_program):
    wrong = differ(arch.run(text, what), json.loads(of_program))
    if wrong:
        print(f"FAILED  {what}: {wrong}")
    return 1 if wrong else 0


def told_of_builder(config, text):
    """The graph of the family, which leaves laws to the scheme hf."""
    graphs = [arch.run(text, config), json.loads(run("describe", config, "--json"))]
    for graph in graphs:
        for tensor in graph["tensors"]:
            tensor["law"] = None  # a file may say what the scheme would do anyway; describe has compared them
    wrong = differ(*graphs)
    if wrong:
        print(f"FAILED  {config}, as its family builds it: {wrong}")
    return wrong


def main():
    failed = seen = 0
    for path in sorted([*(ROOT / "stepzero/families").glob("*.py"), *(ROOT / "examples/architectures").glob("*.py")]):
        graph = run("describe", str(path), "--json")
        failed += check(path.name, path.read_text(encoding="utf-8"), graph) if graph else 1
        seen += 1
    with tempfile.TemporaryDirectory() as folder:
        # files of families that read a config.json: the keys too mean the same to both
        for name, case in json.loads((ROOT / "tests/models/transformers_4.57.json").read_text()).items():
            file = ROOT / f"stepzero/families/{name}.py"
            text = file.read_text(encoding="utf-8") if file.exists() else ""
            if 'key("' not in text:
                continue  # its config.json is read in C++
            path = pathlib.Path(folder) / name
            path.write_text(json.dumps(case["config"]))
            seen += 1
            wrong = differ({**arch.run(text, name, (), case["config"]), "name": name}, {**json.loads(run("describe", str(path), "--json")), "name": name})
            failed += 1 if wrong else 0
            if wrong:
                print(f"FAILED  {name} of its config.json: {wrong}")
        configs = [line.split()[0] for line in run("models").splitlines()[1:]]
        for name, case in json.loads((ROOT / "tests/models/variants.json").read_text()).items():
            path = pathlib.Path(folder) / f"{name}.json"
            path.write_text(json.dumps(case["config"]))
            configs.append(str(path))
        for config in configs:
            text = run("describe", config)
            if text is None and json.loads(run("describe", config, "--json"))["nodes"][0]["op"] == "pixels":
                continue  # convolutional networks are no files yet
            seen += 1
            if text is None:
                print(f"FAILED  {config}: describe does not print it")
                failed += 1
                continue
            path = pathlib.Path(folder) / "described.py"
            path.write_text(text)
            failed += check(config, text, run("describe", str(path), "--json"))
            failed += 1 if told_of_builder(config, text) else 0
    print(f"{seen} files, {failed} failed")
    return 1 if failed or seen < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
