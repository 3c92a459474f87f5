#!/usr/bin/env python3
"""Every remedy that predict shows, pasted: all presets x schemes x {as they are, four times as deep, post-norm}.

    remedies.py SERVE KEPT [--only PATTERN] [--sample N [--seed S]] [--minutes M] [--workers N] [--notes] [--table FILE]

SERVE is bench_serve: the program's command lines without a start for each. What a model came to is a line of the file KEPT, written as
it comes: the same command goes on where it was ended. The shallowest preset of each family comes first, then all others, both in a random
order (always the same), all models of one after each other, for much of what is asked of one is the same. --sample N: that many models
of all, by chance. With --table the page of what is kept is written and nothing is run.
"""
import argparse
import collections
import json
import random
import re
import shlex
import subprocess
import sys
import threading
import time

RANK = {"note": 0, "warning": 1, "error": 2}
# few tokens, as many as attention is judged on, and little sampling: thousands of models
INPUT = ["--seq-len", "8"]
# of an image three patches by three
PATCH = {"vit": 16, "deit": 16, "dinov2": 14, "clip_vision_model": 14, "siglip_vision_model": 16, "clip-vit-b-32-vision": 32}
HOW = ["--effort", "0.01", "--threads", "1", "--json"]
VARIANTS = ("as it is", "four times as deep", "post-norm")


class Program:
    """Command lines, one after the other in a process that was started once."""

    def __init__(self, serve):
        self.process = subprocess.Popen([serve], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pasted = {}  # the same words, the same answer

    def run(self, words):
        self.process.stdin.write((json.dumps(words) + "\n").encode())
        self.process.stdin.flush()
        code, out, err = map(int, self.process.stdout.readline().split())
        return code, self.process.stdout.read(out).decode(), self.process.stdout.read(err).decode()

    def paste(self, command):
        """The worst of each finding of a command as it was shown; a text where it fails."""
        if command not in self.pasted:
            code, out, err = self.run(shlex.split(command)[1:] + ["--json", "--no-remedies", "--threads", "1"])
            self.pasted[command] = worst(findings_of(out)) if code in (0, 3) else err or "ends"
        return self.pasted[command]


def findings_of(text):
    """Of a signal as JSON, whose thousands of nodes need not be read."""
    return json.JSONDecoder().raw_decode(text, re.search(r'"findings":\s*', text).end())[0]


def names(program, verb):
    lines = program.run([verb])[1].splitlines()
    if verb == "models":
        return [(line.split()[0], line.split()) for line in lines[1:] if line.strip()]
    return [line.split()[0] for line in lines if line and not line.startswith((" ", "stepzero "))]


def input_of(model, family):
    patch = PATCH.get(model) or PATCH.get(family)
    return [] if family == "cnn" else ["--set", f"image={3 * patch}"] if patch else INPUT


def cells(program):
    out = []
    for model, columns in names(program, "models"):
        layers, family = int(columns[2]), columns[-1]
        for scheme in names(program, "schemes"):
            for variant in VARIANTS:
                words = ["predict", model, "--scheme", scheme]
                if variant != "as it is":
                    if family == "cnn":
                        continue
                    depth = 4 * layers
                    changed = [f"layers={depth}"] + ([f"decoder_layers={depth}"] if family in ("t5", "bart") else [])
                    for change in changed if variant == "four times as deep" else ["norm_placement=post"]:
                        words += ["--set", change]
                words += input_of(model, family)
                out.append((model, scheme, variant, words))
    order = random.Random(1)
    order.shuffle(out)
    first = {}  # the shallowest of each family
    for model, columns in sorted(names(program, "models"), key=lambda m: int(m[1][2])):
        first.setdefault(columns[-1], model)
    models, shallowest = sorted({cell[0] for cell in out}), set(first.values())
    order.shuffle(models)
    place = {model: (model not in shallowest, i) for i, model in enumerate(models)}
    return sorted(out, key=lambda cell: place[cell[0]])


def worst(findings):
    out = {}
    for f in findings:
        out[f["id"]] = max(out.get(f["id"], 0), RANK[f["severity"]])
    return out


def judge(program, words, notes):
    """What is wrong with the remedies of one model, as a row to keep."""
    code, out, err = program.run(words + HOW + (["--full"] if notes else []))
    row = {"command": shlex.join(words), "findings": [], "remedies": 0, "wrong": []}
    if code not in (0, 3):
        row["refused"] = err.splitlines()[0] if err else str(code)
        return row
    before = findings_of(out)
    was = worst(before)
    for f in before:
        if not (RANK[f["severity"]] > 0 or notes):
            continue
        remedies = f.get("remedies", [])
        row["findings"].append([f["id"], f["severity"], len(remedies)])
        for r in remedies:
            row["remedies"] += 1
            now = program.paste(r["command"])
            if isinstance(now, str):
                row["wrong"].append(f"{r['command']}: {now.strip()}")
                continue
            if f["id"] in now:
                row["wrong"].append(f"{f['id']} is still there after {r['flags']}")
            for name, severity in now.items():
                if severity >= RANK[f["severity"]] and was.get(name, -1) < severity:
                    row["wrong"].append(f"{r['flags']} brings {name}, for {f['id']}")
    return row


def kept_rows(path):
    try:
        with open(path) as file:
            return [json.loads(line) for line in file if line.endswith("\n")]
    except FileNotFoundError:
        return []


def tell(rows, out=print):
    found = sum(len(r["findings"]) for r in rows)
    shown = sum(r["remedies"] for r in rows)
    wrong = [f"{r['command']}: {w}" for r in rows for w in r["wrong"]]
    refused = [r for r in rows if "refused" in r]
    out(f"{len(rows)} models, {len(refused)} of them refused, {found} findings, {shown} remedies pasted, {len(wrong)} of them wrong")
    return wrong


def page(rows, all_cells):
    total = len(all_cells)
    variants = {shlex.join(words): variant for _, _, variant, words in all_cells}
    rows = [r for r in rows if r["command"] in variants]
    seen, without = collections.Counter(), collections.Counter()
    by_variant = collections.defaultdict(lambda: [0, 0, 0, 0, 0, 0])
    for r in rows:
        counts = by_variant[variants[r["command"]]]
        counts[0] += 1
        counts[1] += "refused" in r
        counts[2] += len(r["findings"])
        counts[3] += sum(n == 0 for _, _, n in r["findings"])
        counts[4] += r["remedies"]
        counts[5] += len(r["wrong"])
        for name, severity, n in r["findings"]:
            seen[name, severity] += 1
            without[name, severity] += n == 0
    lines = [f"{len(rows)} of {total} models (presets x schemes x variants).\n",
             "| variant | models | refused | findings | without a remedy | remedies pasted | wrong |", "|---|---|---|---|---|---|---|"]
    for variant in VARIANTS:
        lines.append("| " + " | ".join([variant, *map(str, by_variant[variant])]) + " |")
    lines += ["", "| finding | severity | seen | without a remedy |", "|---|---|---|---|"]
    for name, severity in sorted(seen, key=lambda k: (k[0], -RANK[k[1]])):
        lines.append(f"| `{name}` | {severity} | {seen[name, severity]} | {without[name, severity]} |")
    wrong = [f"{r['command']}: {w}" for r in rows for w in r["wrong"]]
    if wrong:
        lines += ["", "Wrong:", ""] + [f"* `{w}`" for w in wrong]
    return "\n".join(lines) + "\n"


def write_table(path, text):
    """Between the marks of a page."""
    begin, end = "<!-- begin: ./dev remedies -->\n", "<!-- end -->\n"
    with open(path) as file:
        whole = file.read()
    head, rest = whole.split(begin)
    with open(path, "w") as file:
        file.write(head + begin + text + end + rest.split(end, 1)[1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("serve")
    parser.add_argument("kept")
    parser.add_argument("--only", default="")
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--notes", action="store_true")
    parser.add_argument("--table")
    asked = parser.parse_args()
    everything = cells(Program(asked.serve))
    if asked.table:
        write_table(asked.table, page(kept_rows(asked.kept), everything))
        return 0
    done = {r["command"] for r in kept_rows(asked.kept)}
    left = [c for c in everything if re.match(asked.only, c[0]) and shlex.join(c[3]) not in done]
    if asked.sample:
        left = random.Random(asked.seed).sample(left, min(asked.sample, len(left)))
    print(f"{len(everything)} models, {len(done)} kept, {len(left)} to go", flush=True)
    until, one, start = time.time() + 60 * asked.minutes, threading.Lock(), time.time()
    todo, told = iter(left), [0]

    def work():
        program = Program(asked.serve)
        while time.time() < until:
            with one:
                cell = next(todo, None)
            if cell is None:
                return
            row = judge(program, cell[3], asked.notes)
            with one:
                with open(asked.kept, "a") as file:
                    file.write(json.dumps(row) + "\n")
                told[0] += 1
                if told[0] % 200 == 0:
                    rate = told[0] / (time.time() - start)
                    print(f"{told[0]} of {len(left)}, {(len(left) - told[0]) / rate / 60:.0f} min left", flush=True)

    threads = [threading.Thread(target=work) for _ in range(asked.workers)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    wrong = tell([r for r in kept_rows(asked.kept)])
    for w in wrong:
        print(w)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
