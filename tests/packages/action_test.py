#!/usr/bin/python3
"""The steps of action.yml and the hooks of .pre-commit-hooks.yaml, run as GitHub and pre-commit run them:

    /usr/bin/python3 tests/packages/action_test.py PROGRAM
"""
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
program = pathlib.Path(sys.argv[1]).resolve()
SMALL = {"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 2, "vocab_size": 64, "n_positions": 16}
count = 0


def check(what, condition, told=""):
    global count
    count += 1
    if not condition:
        sys.exit(f"FAILED {what}\n{told}")


def action(folder, **given):
    """The code of the first step that fails, what was printed, and the job's summary."""
    text = yaml.safe_load((ROOT / "action.yml").read_text())
    inputs = {name: given.get(name.replace("-", "_"), one.get("default", "")) for name, one in text["inputs"].items()}
    summary = folder / "summary.md"
    summary.write_text("")
    told = ""
    for step in text["runs"]["steps"]:
        check("every step names its shell", step["shell"] == "bash")
        own = {name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda match: inputs[match[1]], value) for name, value in step.get("env", {}).items()}
        check("no input is pasted into a script", "${{" not in step["run"] and not any("${{" in value for value in own.values()))
        environment = {**os.environ, **own, "RUNNER_TEMP": str(folder), "GITHUB_STEP_SUMMARY": str(summary), "PATH": f"{program.parent}:{os.environ['PATH']}"}
        done = subprocess.run(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]], cwd=folder, env=environment, capture_output=True, text=True)
        told += done.stdout + done.stderr
        if done.returncode:
            return done.returncode, told, summary.read_text()
    return 0, told, summary.read_text()


def hook(name, folder, *files):
    one = next(h for h in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text()) if h["id"] == name)
    check("a hook of the PATH", one["language"] == "system")
    chosen = [f for f in files if re.search(one["files"], f)]
    done = subprocess.run([*shlex.split(one["entry"]), *chosen], cwd=folder, capture_output=True, text=True,
                          env={**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"})
    return done.returncode, done.stdout + done.stderr


with tempfile.TemporaryDirectory() as place:
    folder = pathlib.Path(place)
    for name, changes in (("good", {}), ("bad", {"initializer_range": 3.0, "n_layer": 12})):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps({**SMALL, **changes}))
        subprocess.run([program, "init", f"{name}/config.json", "--quiet", "-o", f"{name}/w.safetensors"], cwd=folder, check=True, capture_output=True)
    # an audit's error: weights that are not finite
    data = bytearray((folder / "bad" / "w.safetensors").read_bytes())
    data[-400:] = b"\xff" * 400
    (folder / "bad" / "w.safetensors").write_bytes(data)

    seq = "--seq-len 8"
    code, told, summary = action(folder, path="good/config.json", flags=seq, page="page.html")
    check("predict, nothing found", code == 0 and summary.startswith("## good") and (folder / "page.html").read_text().startswith("<!"), told + summary)
    code, told, summary = action(folder, path="bad/config.json", flags=seq)
    check("predict, an error found", code == 1 and len(summary) > 100, f"{code} {told} {summary}")
    code, told, summary = action(folder, path="no/config.json")
    check("predict, no such file", code == 2, told)
    code, told, summary = action(folder, verb="audit", path="good/w.safetensors", page="audit.html")
    check("audit, nothing found", code == 0 and "```" in summary and (folder / "audit.html").exists(), f"{code} {told}")
    code, told, summary = action(folder, verb="audit", path="bad/w.safetensors")
    check("audit, an error found", code == 1 and len(summary) > 100, f"{code} {told}")
    code, told, _ = action(folder, verb="train", path="good")
    check("a verb that it has not", code == 2, told)
    code, told, _ = action(folder, path="x'; touch stolen; echo '$(touch stolen)`touch stolen`")
    check("a path is a word and nothing else", code == 2 and not (folder / "stolen").exists(), told)

    check("hook: predict passes", (got := hook("stepzero-predict", folder, "good/config.json", "good/w.safetensors"))[0] == 0, got)
    check("hook: predict fails, whichever is bad", (got := hook("stepzero-predict", folder, "bad/config.json", "good/config.json"))[0] == 1, got)
    check("hook: audit passes", (got := hook("stepzero-audit", folder, "good/w.safetensors", "good/config.json"))[0] == 0, got)
    check("hook: audit fails", (got := hook("stepzero-audit", folder, "good/w.safetensors", "bad/w.safetensors"))[0] == 1, got)
print(f"action and hooks: {count} checks")
