#!/usr/bin/env python3
"""What step zero can tell of training: many short runs of small models, and what was predicted of each before its first step.

    trainability.py run PROGRAM STORE [--most N]     goes through the list of runs, from where STORE (JSON lines) ends
    trainability.py effects PROGRAM STORE            what a first update does, for stores that lack it
    trainability.py table STORE > bench/trainability.csv
    trainability.py judge TABLE                      labels, the risk, the findings: docs/trainability.md

Standard library only. The list is a function of its number: run k is always the same run. Labels are not stored: losses are.
"""
import argparse
import csv
import json
import math
import os
import random
import subprocess
import sys

STEPS, TOKENS, BATCH = 80, 16, 8
NORMS = {"pre": ["norm_placement=pre"], "post": ["norm_placement=post"], "sandwich": ["norm_placement=sandwich"],
         "branch": ["norm_placement=branch"], "none": ["norm=none"]}
FAMILIES = {"gpt2": ["gpt2"], "llama": ["llama-2-7b", "kv_heads={heads}", "ffn={ffn}"], "bert": ["bert-base"],
            "mixtral": ["mixtral-8x7b", "kv_heads={heads}", "experts=4", "expert_ffn={ffn}", "ffn={ffn}"]}
DEPTHS = [2, 3, 4, 6, 8, 12, 16, 24, 32, 48]
SCHEMES = ["hf", "megatron", "xavier-normal", "xavier-uniform", "he", "lecun", "torch-default", "bert", "small-init+wang", "olmo-mitchell",
           "llama-depth", "t5", "orthogonal", "mup"]
# fields that go wrong in practice: a std that was meant for another width, a scale that was forgotten or applied twice
MISTAKES = [["init_std=0.2"], ["init_std=0.1"], ["init_std=0.005"], ["init_std=0.5"], ["embedding_scale=30"], ["embedding_scale=0.05"],
            ["residual_scale=4"], ["residual_scale=0.05"], ["attention_scale=4"], ["logit_scale=20"], ["logit_scale=0.05"], ["skip_scale=0.7"]]
DATA = {"derivations": [], "source": ["--text", "stepzero/ops"]}
COLUMNS = ["run", "data", "family", "norm", "layers", "width", "scheme", "set", "rate", "seed", "status", "first", "last", "best", "held_out", "steps",
           "p_loss", "p_gradient", "p_forward", "p_backward", "p_angle", "p_cosine", "p_scores", "p_entropy", "p_added", "p_effect", "p_effect_most",
           "findings"]


def plan(k):
    """Run k: data, architecture, scheme, rate, seed."""
    r = random.Random(f"stepzero trainability {k}")
    family = r.choice(["gpt2", "gpt2", "gpt2", "llama", "bert", "mixtral"])
    norm = r.choice(["pre", "pre", "post", "post", "none", "sandwich", "branch"])
    layers = r.choice(DEPTHS)
    width = r.choice([32, 32, 48])
    scheme = r.choice(SCHEMES)
    fields = r.choice(MISTAKES) if r.random() < 0.35 else []
    if fields and fields[0].startswith("init_std"):
        scheme = r.choice(["hf", "megatron", "bert"])
    rate = 10 ** r.uniform(-3.5, -1.0)
    return {"run": k, "data": r.choice(list(DATA)), "family": family, "norm": norm, "layers": layers, "width": width, "scheme": scheme,
            "set": fields, "rate": float(f"{rate:.4g}"), "seed": r.randrange(1000)}


def model_of(p):
    heads, ffn = p["width"] // 16, 4 * p["width"] if p["family"] in ("gpt2", "bert") else 2 * p["width"]
    words = [w.format(heads=heads, ffn=ffn) for w in FAMILIES[p["family"]]]
    fields = words[1:] + [f"layers={p['layers']}", f"width={p['width']}", f"heads={heads}", "head_dim=16"] + NORMS[p["norm"]] + p["set"]
    out = [words[0], "--scheme", p["scheme"]]
    for f in fields:
        out += ["--set", f]
    return out


def call(program, words):
    env = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", GOMP_SPINCOUNT="100")
    done = subprocess.run([program, *words], capture_output=True, text=True, env=env)
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError:
        return {"error": done.stderr.strip().splitlines()[:1]}


def best(v):
    return v.get("predicted")


def predicted(program, p, vocab):
    s = call(program, ["predict", *model_of(p), "--set", f"vocab={vocab}", "--seq-len", str(TOKENS), "--order", "fluctuations", "--no-remedies", "--quiet",
                       "--json"])
    if "error" in s:
        return {"error": s["error"]}
    streams = [n for n in s["nodes"] if n["name"].split(".")[-2:-1] == ["stream"]]
    growth = s.get("growth", {})
    out = {"p_loss": best(s["loss"]), "p_gradient": best(s["gradient_norm"]), "p_forward": best(growth.get("forward", {})),
           "p_backward": best(growth.get("gradient", {})), "p_angle": best(growth.get("angle", {})),
           "p_cosine": best(streams[-1]["forward"].get("token_cosine", {})) if streams else None,
           "p_scores": max([best(a["score_variance"]) or 0 for a in s["attention"]], default=None),
           "p_entropy": min([best(a["entropy"]) or 0 for a in s["attention"]], default=None),
           "p_added": None, "findings": [f"{f['id']}:{f['severity']}" for f in s["findings"]]}
    if streams:
        first, last = best(streams[0]["forward"]["second_moment"]), best(streams[-1]["forward"]["second_moment"])
        out["p_added"] = last / first if first and last else None
    return out


def effects(program, p, vocab):
    """What the first update does to each matrix's output, as a share of it: the mean of the logarithms, and the most."""
    s = call(program, ["solve", *model_of(p), "--set", f"vocab={vocab}", "--seq-len", str(TOKENS), "--objective", "update", "--move-rates", "--order",
                       "fluctuations", "--rate", str(p["rate"]), "--betas", "0.9,0.99", "--quiet", "--json"])
    shares = [t["before"] for t in s.get("targets", []) if t["before"] and math.isfinite(t["before"])]
    if not shares:
        return {"p_effect": None, "p_effect_most": None}
    return {"p_effect": math.exp(sum(math.log(x) for x in shares) / len(shares)), "p_effect_most": max(shares)}


def read_store(store):
    """Lines of one run add up. One that a kill cut short is taken out: it is made again."""
    runs = {}
    if os.path.exists(store):
        with open(store, encoding="utf-8") as f:
            every = f.readlines()
        lines = [line for line in every if line.endswith("\n")]
        if len(lines) < len(every):
            with open(store, "w", encoding="utf-8") as f:
                f.writelines(lines)
        for line in lines:
            one = json.loads(line)
            runs.setdefault(one["run"], {}).update(one)
    return runs


def add_effects(program, store):
    for k, d in sorted(read_store(store).items()):
        if "p_effect" not in d and "losses" in d:
            with open(store, "a", encoding="utf-8") as f:
                f.write(json.dumps({"run": k, **effects(program, plan(k), 94)}) + "\n")


def run(program, store, most):
    done = read_store(store)
    for k in range(most):
        if "status" in done.get(k, {}):
            continue
        p = plan(k)
        words = ["train", *model_of(p), *DATA[p["data"]], "--level", "char", "--seq-len", str(TOKENS), "--batch", str(BATCH), "--steps", str(STEPS),
                 "--rate", str(p["rate"]), "--betas", "0.9,0.99", "--seed", str(p["seed"]), "--threads", "1", "--validate-every", str(STEPS), "--quiet",
                 "--json"]
        t = call(program, words)
        out = dict(p)
        if "error" in t:
            out.update(status="refused", why=t["error"])
        else:
            one = t["runs"][0]
            losses = [s["loss"] for s in one["steps"]]
            out.update(status=one["outcome"], losses=[None if x is None else float(f"{x:.5g}") for x in losses],
                       held_out=one["validation"][-1]["loss"] if one["validation"] else None)
            out.update(predicted(program, p, t["model"]["vocab"]))
            out.update(effects(program, p, t["model"]["vocab"]))
        with open(store, "a", encoding="utf-8") as f:
            f.write(json.dumps(out) + "\n")


def row_of(d):
    losses = [x if x is not None and math.isfinite(x) else float("inf") for x in d.get("losses", [])]
    tail = losses[-max(1, len(losses) // 5):]
    out = {c: d.get(c) for c in COLUMNS}
    out.update(set=" ".join(d["set"]), findings=" ".join(d.get("findings", [])), steps=len(losses) - 1,
               first=losses[0] if losses else None, last=sum(tail) / len(tail) if losses else None, best=min(losses, default=None))
    return {k: (f"{v:.6g}" if isinstance(v, float) else v) for k, v in out.items()}


def table(store):
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for _, d in sorted(read_store(store).items()):
        writer.writerow(row_of(d))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    r = verbs.add_parser("run")
    r.add_argument("program")
    r.add_argument("store")
    r.add_argument("--most", type=int, default=1200)
    e = verbs.add_parser("effects")  # for stores that were made without
    e.add_argument("program")
    e.add_argument("store")
    for name in ("table", "judge"):
        verbs.add_parser(name).add_argument("path")
    a = parser.parse_args()
    if a.verb == "run":
        run(a.program, a.store, a.most)
    elif a.verb == "effects":
        add_effects(a.program, a.store)
    elif a.verb == "table":
        table(a.path)
    else:
        import trainability_judge
        trainability_judge.main(a.path)


if __name__ == "__main__":
    main()
