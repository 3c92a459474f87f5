"""Every request for memory fails once, in every verb: a preloaded library counts them and refuses the k-th."""
import collections
import random
import shutil

import system_calls
from work import MODEL, SMALL, TRAIN, Case, Work

INIT = ["init", *MODEL, "--quiet", "-o", "w.safetensors"]
VERBS = [
    Work("predict", ["predict", *MODEL, *SMALL, "--no-remedies"]),
    Work("measure", ["measure", *MODEL, *SMALL]),
    Work("compare", ["compare", *MODEL, *SMALL, "--seeds", "2"]),
    Work("report", ["report", *MODEL, *SMALL, "--no-remedies", "-o", "page.html"]),
    Work("train", [*TRAIN, "1", "--save", "run"]),
    Work("step", ["step", *MODEL, *SMALL, "--no-search"]),
    Work("coord", ["coord", *MODEL, "--seq-len", "8", "--widths", "32,64", "--predicted"]),
    Work("transfer", ["transfer", *MODEL, "--target-set", "width=64", "-o", "table.json"]),
    Work("solve", ["solve", *MODEL, "--seq-len", "8", "--objective", "depth", "-o", "scheme.json"]),
    Work("sweep", ["sweep", *MODEL, "--seq-len", "8", "--over", "init_std=0.01..0.03:2", "--csv", "map.csv"]),
    Work("init", INIT),
    Work("audit", ["audit", "w.safetensors", "--html", "page.html", "--quiet"], [INIT]),
    Work("diff", ["diff", "w.safetensors", "v.safetensors"], [INIT, [*INIT[:-1], "v.safetensors", "--seed", "7"]]),
    Work("claims", ["claims", "pe-norm"]),
    Work("explain", ["explain", "attention"]),
    Work("describe", ["describe", *MODEL]),
    Work("explorer", ["explorer", "-o", "page.html"]),
    Work("models", ["models"]),
    Work("schemes", ["schemes"]),
    Work("--help", ["predict", "--help"]),
]


def count_of(case, shim, place):
    folder = case.fresh()
    case.program.run(case.work.words, folder, LD_PRELOAD=shim, STEPZERO_FAULT="allocation:0", STEPZERO_COUNT=str(place))
    shutil.rmtree(folder)
    return map(int, place.read_text().split())


def run(work, program, folder, shim, most, seed):
    """Every k where there are at most so many; else so many of them, drawn."""
    case = Case(program, work, folder / "allocations")
    total, before = count_of(case, shim, folder / "count")
    most = most if total < 5_000_000 else most // 10
    chosen = range(1, total + 1) if total <= most else sorted(random.Random(f"{work.name} {seed}").sample(range(1, total + 1), most))
    count, wrong = collections.Counter({"requests": total, "before main": before}), []
    for k in chosen:
        where = case.fresh()
        code, _, error = program.run(work.words, where, LD_PRELOAD=shim, STEPZERO_FAULT=f"allocation:{k}")
        problems = system_calls.judge(case, None, code, error, system_calls.taken(where), started=k > before, codes=(2, 70))
        count["tried"] += 1
        if code == -11 and "libdnnl" in error and "crashed in" in error and len(problems) == 1:
            count[system_calls.DNNL] += 1
            continue
        count["done all the same" if code == case.code else "refused"] += 1
        wrong += [f"{work.name}: request {k} of {total}: {problem}" for problem in problems]
    return count, wrong
