#!/usr/bin/env python3
"""What --json prints is what docs/signal.schema.json and docs/verbs.schema.json say, and the schema refuses what it should. Needs python3-jsonschema."""
import copy
import json
import pathlib
import subprocess
import sys
import tempfile

import jsonschema

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/release/stepzero"
TINY = ["gpt2", "--set", "layers=2", "--set", "width=32", "--set", "heads=4", "--set", "vocab=97", "--seq-len", "12", "--json"]
SCHEMA = json.loads((ROOT / "docs/signal.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
VERBS = json.loads((ROOT / "docs/verbs.schema.json").read_text())


def run(*arguments):
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True)
    assert done.returncode in (0, 1), (arguments, done.stderr)
    return json.loads(done.stdout)


def spoiled(document):
    """Documents that must be refused, each with what is wrong with it."""
    def change(what, edit):
        other = copy.deepcopy(document)
        edit(other)
        return what, other
    yield change("another schema", lambda d: d.update(schema="stepzero.signal/2"))
    yield change("no findings", lambda d: d.pop("findings"))
    yield change("an unknown field", lambda d: d.update(extra=1))
    yield change("a text for a number", lambda d: d["loss"].update(predicted="10.8"))
    yield change("a field of a node missing", lambda d: d["nodes"][0]["forward"].pop("mean"))
    yield change("a severity of its own", lambda d: d["findings"].append({"id": "x", "severity": "fatal", "where": "", "evidence": "", "remedy": ""}))
    yield change("a negative size", lambda d: d["model"].update(layers=-1))


def check_verbs(folder):
    """step, coord and transfer: the names of what is not as it should be, and how many things were looked at."""
    jsonschema.Draft202012Validator.check_schema(VERBS)
    validator = jsonschema.Draft202012Validator(VERBS)
    coord = ["coord", *TINY[:-1], "--widths", "32,64", "--seeds", "1", "--steps", "1", "--json", "--set", "heads=4", "--set", "vocab=97"]
    documents = {
        "step": run("step", *TINY),
        "step, measured beside": run("step", *TINY, "--measure", "--seeds", "2"),
        "step, measured": run("step", *TINY, "--measured", "--optimizer", "muon", "--seeds", "1"),
        "coord": run(*coord),
        "coord with a mistake": run(*coord, "--parametrization", "none"),
        "coord over depths": run("coord", *TINY, "--depths", "1,2", "--seeds", "2", "--parametrization", "completep", "--html", f"{folder}/coord.html"),
        "solve": run("solve", *TINY),
        "solve, bound and measured": run("solve", *TINY, "--free", "attention_out,ffn_out,query", "--subject-to", "scores=4", "--measure", "--seeds", "2"),
        "solve, rates": run("solve", *TINY, "--objective", "update", "--move-rates"),
        "sweep": run("sweep", *TINY, "--over", "std.ffn_out=0.5..2:x3", "--over", "layers=1,2,0"),
        "sweep, trained": run("sweep", *TINY, "--over", "rate=1e-3,1e-2", "--train", "1", "--steps", "2"),
        "transfer": run("transfer", "gpt2", "gpt2-medium", "--json"),
        "transfer, looked at": run("transfer", *TINY[:-3], "--target-set", "width=64", "--check", "--seeds", "1", "--seq-len", "8", "--zero-query", "--json"),
    }
    wrong = [name for name, document in documents.items() if not validator.is_valid(document)]
    broken = copy.deepcopy(documents["coord"])
    broken["rows"][0]["verdict"] = "perhaps"
    wrong += ["accepted: a third verdict"] if validator.is_valid(broken) else []
    return wrong, len(documents) + 1


def main():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    failed = passed = 0
    with tempfile.TemporaryDirectory() as folder:
        documents = {
            "predict": run("predict", *TINY, "--jacobians"),
            "predict, long": run("predict", *TINY[:-3], "--seq-len", "600", "--json"),
            "predict with findings": run("predict", *TINY, "--set", "norm=none"),
            "measure": run("measure", *TINY, "--seeds", "2"),
            "measure one token": run("measure", *TINY[:-3], "--seq-len", "1", "--json"),
            "measure streamed in bf16": run("measure", *TINY, "--stream", "--dtype", "bf16"),
            "measure weightless": run("measure", *TINY, "--weightless"),
            "measure steps": run("measure", *TINY, "--steps", "2", "--seeds", "2"),
            "measure weightless step": run("measure", *TINY, "--weightless", "--steps", "1", "--optimizer", "muon"),
            "compare": run("compare", *TINY, "--seeds", "2"),
            "report": run("report", *TINY, "-o", f"{folder}/page.html"),
        }
        wrong, looked_at = check_verbs(folder)
        for name in wrong:
            print(f"FAILED  {name}: not as docs/verbs.schema.json has it")
        failed, passed = failed + len(wrong), passed + looked_at - len(wrong)
    for name, document in documents.items():
        errors = list(VALIDATOR.iter_errors(document))
        for error in errors[:5]:
            print(f"FAILED  {name}: {error.json_path}: {error.message[:200]}")
        failed, passed = failed + bool(errors), passed + (not errors)
    stepped = copy.deepcopy(documents["measure steps"])
    stepped["steps"][0]["loss"].pop("after")
    fine = not VALIDATOR.is_valid(stepped)
    if not fine:
        print("FAILED  accepted: a step without its loss")
    failed, passed = failed + (not fine), passed + fine
    for what, document in spoiled(documents["predict"]):
        fine = not VALIDATOR.is_valid(document)
        if not fine:
            print(f"FAILED  accepted: {what}")
        failed, passed = failed + (not fine), passed + fine
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
