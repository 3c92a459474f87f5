"""Judges the table of trainability.py: labels, a risk fitted on one half of the architectures and held against the other, the findings.

The page docs/trainability.md is what main() prints. Standard library only.
"""
import csv
import hashlib
import math

VOCABULARY = 94  # characters of both texts, about: a uniform guess has its logarithm
CLASSES = {"pre": "pre", "sandwich": "pre", "branch": "pre", "post": "post", "none": "none"}


HEAD = """# What step zero can tell of training

`./dev trainability` trains small models for a short while and holds what was predicted of each before its first step against what became of it. This page is
what it prints; the runs are [a table](../bench/trainability.csv). It goes on where it was ended, and the list of runs is a function of their number ([script](../bench/trainability.py)).

A run: 80 updates by AdamW at a constant rate (betas 0.9, 0.99, no warm-up, no clipping), 8 sequences of 16 characters; 2 to 48 layers of width 32 or 48; GPT-2, LLaMA, BERT
and Mixtral blocks; norms before the branches (also sandwich and behind them), after the sum, or none; 14 schemes, a third of the runs with a planted mistake (a std for another
width, a scale that is forgotten or applied twice); rates from 3e-4 to 0.1, log-uniform; two texts. One seed a run.

Labels are made from the losses alone: *progress* is how far a run has come from ln V to the best loss that any run of its blocks has on its text; *fine* from 0.6 on, *slow* from
0.2, else *stalled*; *diverged* where a number is not finite or the loss has risen above where it began and above ln V. All but fine are *bad*. 80 updates say nothing of what comes later: what is told
here is whether a model gets going.

The architectures (blocks, norms, depth, width) are halved by a hash of their names: the risk is fitted on one half and judged on the other. It is a logistic model of
numbers that `predict` tells (growth of stream, gradient and angle over the depth, scores, cosine, entropy, gradient norm, distance of the loss from ln V), of what the first
update does to the outputs of matrices, of the depth and the rate, with their squares and products with the rate.
"""


def number(text, otherwise=float("nan")):
    return float(text) if text not in ("", "None") else otherwise


def architecture(row):
    return f"{row['family']} {row['norm']} {row['layers']} {row['width']}"


def held_out(row):
    """Half of the architectures, by a hash of the name: no run of one is on both sides."""
    return hashlib.sha256(architecture(row).encode()).digest()[0] % 2 == 1


def label(rows):
    """progress: what of ln V - (the best loss of its family on its text) a run has made. fine from 0.6, slow from 0.2, else stalled; diverged: not
    finite, or above where it began (and above ln V)."""
    best = {}
    for r in rows:
        key = (r["data"], r["family"])
        best[key] = min(best.get(key, float("inf")), number(r["last"], float("inf")))
    guess = math.log(VOCABULARY)
    for r in rows:
        last, first = number(r["last"], float("inf")), number(r["first"], float("inf"))
        r["progress"] = (guess - last) / (guess - best[(r["data"], r["family"])]) if math.isfinite(last) else float("-inf")
        if not math.isfinite(last) or r["status"] == "diverged" and last > guess or last > max(first, guess) * 1.02:
            r["label"] = "diverged"
        else:
            r["label"] = "fine" if r["progress"] >= 0.6 else "slow" if r["progress"] >= 0.2 else "stalled"
        r["bad"] = r["label"] != "fine"


def safe_log(x, least=1e-12):
    return math.log(max(x, least)) if math.isfinite(x) else 0.0


def clipped(x, most=12.0):
    return max(-most, min(most, x)) if math.isfinite(x) else 0.0


def features(r):
    layers, rate = number(r["layers"]), number(r["rate"])
    grows = [number(r[k], 0.0) * layers for k in ("p_forward", "p_backward", "p_angle")]
    scores, cosine, entropy = number(r["p_scores"], 1), number(r["p_cosine"], 0), number(r["p_entropy"], 1)
    gradient, effect = number(r["p_gradient"], 1), number(r["p_effect"], float("nan"))
    base = [clipped(g) for g in grows] + [clipped(safe_log(scores)), clipped(-safe_log(1 - cosine, 1e-6)), entropy, clipped(safe_log(gradient)),
                                          clipped(math.log1p(abs(number(r["p_loss"], 5) - math.log(VOCABULARY)))), math.log(layers),
                                          clipped(safe_log(number(r["p_added"], 1)))]
    moves = [clipped(safe_log(effect)), clipped(safe_log(number(r["p_effect_most"], float("nan"))))]
    x = math.log(rate)
    # bends: what is bad on both sides of a middle
    return base + moves + [x, x * x] + [b * b / 10 for b in base[1:2] + base[3:4] + moves[:1]] + [x * base[1], x * base[8], x * moves[0]]


def standardised(train, test):
    n = len(train[0])
    mean = [sum(v[i] for v in train) / len(train) for i in range(n)]
    dev = [math.sqrt(sum((v[i] - mean[i]) ** 2 for v in train) / len(train)) or 1.0 for i in range(n)]
    scale = lambda v: [1.0] + [max(-4.0, min(4.0, (v[i] - mean[i]) / dev[i])) for i in range(n)]
    return [scale(v) for v in train], [scale(v) for v in test]


def logistic(x, y, ridge=2.0, steps=60):
    """Newton's method; a ridge on all but the constant."""
    n = len(x[0])
    w = [0.0] * n
    for _ in range(steps):
        p = [1 / (1 + math.exp(-max(-30, min(30, sum(a * b for a, b in zip(w, v)))))) for v in x]
        g = [sum((pi - yi) * v[i] for pi, yi, v in zip(p, y, x)) + (ridge * w[i] if i else 0) for i in range(n)]
        h = [[sum(pi * (1 - pi) * v[i] * v[j] for pi, v in zip(p, x)) + (ridge if i == j and i else 1e-9 if i == j else 0) for j in range(n)] for i in range(n)]
        step = solve(h, g)
        w = [a - b for a, b in zip(w, step)]
        if max(abs(s) for s in step) < 1e-6:
            break
    return w


def solve(a, b):
    n = len(b)
    m = [row[:] + [b[i]] for i, row in enumerate(a)]
    for i in range(n):
        k = max(range(i, n), key=lambda r: abs(m[r][i]))
        m[i], m[k] = m[k], m[i]
        for r in range(i + 1, n):
            f = m[r][i] / m[i][i]
            m[r] = [x - f * y for x, y in zip(m[r], m[i])]
    out = [0.0] * n
    for i in reversed(range(n)):
        out[i] = (m[i][n] - sum(m[i][j] * out[j] for j in range(i + 1, n))) / m[i][i]
    return out


def auroc(score, y):
    """Share of pairs (bad, fine) in the right order; ties count half."""
    pairs = sorted(zip(score, y))
    ranks, i = 0.0, 0
    while i < len(pairs):
        j = i
        while j < len(pairs) and pairs[j][0] == pairs[i][0]:
            j += 1
        ranks += sum(1 for k in range(i, j) if pairs[k][1]) * (i + j + 1) / 2
        i = j
    bad = sum(1 for _, b in pairs if b)
    fine = len(pairs) - bad
    return (ranks - bad * (bad + 1) / 2) / (bad * fine) if bad and fine else float("nan")


def calibration(p, y, bins=10):
    """Expected calibration error over bins of equal width, and the bins."""
    table = []
    for k in range(bins):
        inside = [(a, b) for a, b in zip(p, y) if k / bins <= a < (k + 1) / bins or (k == bins - 1 and a == 1)]
        if inside:
            table.append((len(inside), sum(a for a, _ in inside) / len(inside), sum(b for _, b in inside) / len(inside)))
    return sum(n * abs(a - b) for n, a, b in table) / max(1, len(p)), table


def interval(k, n, z=1.96):
    """Wilson's, of a share."""
    if n == 0:
        return 0.0, 1.0
    p, d = k / n, 1 + z * z / n
    middle, half = (p + z * z / (2 * n)) / d, z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / d
    return max(0.0, middle - half), min(1.0, middle + half)


def risk_text(rows):
    train, test = [r for r in rows if not held_out(r)], [r for r in rows if held_out(r)]
    out = [f"{len(train)} runs of {len({architecture(r) for r in train})} architectures to fit on, {len(test)} of "
           f"{len({architecture(r) for r in test})} others to judge on.\n",
           "| class | runs | bad | AUROC of the risk | rate alone | predicted gradient norm | depth | calibration error |", "|---|---|---|---|---|---|---|---|"]
    x, z = standardised([features(r) for r in train], [features(r) for r in test])
    one_hot = lambda r: [1.0 * (CLASSES[r["norm"]] == c) for c in ("post", "none")]
    w = logistic([v + one_hot(r) for v, r in zip(x, train)], [r["bad"] for r in train])
    risk = [1 / (1 + math.exp(-max(-30, min(30, sum(a * b for a, b in zip(w, v + one_hot(r))))))) for v, r in zip(z, test)]
    for name in ("pre", "post", "none", "all"):
        at = [i for i, r in enumerate(test) if name in ("all", CLASSES[r["norm"]])]
        y = [test[i]["bad"] for i in at]
        if not at:
            continue
        by = lambda f: auroc([f(test[i]) for i in at], y)
        ece, _ = calibration([risk[i] for i in at], y)
        out.append(f"| {name} | {len(at)} | {sum(y)} | {auroc([risk[i] for i in at], y):.3f} | {by(lambda r: number(r['rate'])):.3f} | "
                   f"{by(lambda r: number(r['p_gradient'], 0)):.3f} | {by(lambda r: number(r['layers'])):.3f} | {ece:.3f} |")
    _, bins = calibration(risk, [r["bad"] for r in test])
    out += ["", "| runs | risk told | share that was bad |", "|---|---|---|"] + [f"| {n} | {a:.2f} | {b:.2f} |" for n, a, b in bins]
    return "\n".join(out)


def findings_text(rows):
    """Of runs at the rates where half of the models without findings are fine: a finding speaks of the model, not of the rate."""
    told = [r for r in rows if 10 ** -3.2 <= number(r["rate"]) <= 10 ** -1.8]
    counts = {}
    for r in told:
        for f in r["findings"].split():
            name, severity = f.split(":")
            c = counts.setdefault((severity, name), [0, 0])
            c[0] += 1
            c[1] += r["bad"]
    bad = sum(r["bad"] for r in told)
    none = [r for r in told if not any(f.endswith((":warning", ":error")) for f in r["findings"].split())]
    out = [f"Of {len(told)} runs at rates from 6e-4 to 1.6e-2, {bad} ({100 * bad / max(1, len(told)):.0f} %) were bad; of {len(none)} without a warning or an "
           f"error {sum(r['bad'] for r in none)} ({100 * sum(r['bad'] for r in none) / max(1, len(none)):.0f} %).\n",
           "| finding | severity | runs | bad (precision) | 95 % interval | of all bad runs (recall) |", "|---|---|---|---|---|---|"]
    for (severity, name), (n, k) in sorted(counts.items(), key=lambda item: (["error", "warning", "note"].index(item[0][0]), item[0][1])):
        low, high = interval(k, n)
        out.append(f"| {name} | {severity} | {n} | {k / n:.2f} | {low:.2f} to {high:.2f} | {k / max(1, bad):.2f} |")
    return "\n".join(out)


def main(path):
    with open(path, encoding="utf-8") as f:
        rows = [r for r in csv.DictReader(f) if r["status"] != "refused" and r["p_loss"]]
    label(rows)
    print(HEAD)
    counts = {name: sum(r["label"] == name for r in rows) for name in ("fine", "slow", "stalled", "diverged")}
    print(f"{len(rows)} runs: " + ", ".join(f"{n} {name}" for name, n in counts.items()) + ".\n")
    told = sum(1 for r in rows if r["p_effect"] not in ("", "None"))
    print(f"The effects of updates are known of {told} of these runs; where they are not the risk does without. Rows of few runs prove nothing: their "
          "intervals say so, and no severity has been changed by them.\n")
    print("## The risk\n\n" + risk_text(rows) + "\n")
    print("## The findings\n\n" + findings_text(rows))
