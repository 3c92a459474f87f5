#!/usr/bin/python3
"""./dev bench: stepzero against tuned PyTorch and the machine's roof. Ratios in one run; never a bare time.

Each round runs every contestant once, in turn, so that a busy moment of the machine hits all alike; the median of
the rounds is compared."""
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "release"
THREADS = 2


def last_json(command, **env):
    out = subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True, env={**os.environ, **env}).stdout
    return json.loads(out.strip().splitlines()[-1])


def ours(batch, seq, steps):
    return last_json([BUILD / "bench_gpt2", batch, seq, steps, THREADS], OMP_NUM_THREADS=str(THREADS))


def torch(batch, seq, mode, steps):
    return last_json(["/usr/bin/python3", ROOT / "bench" / "torch_gpt2.py", "--batch", batch, "--seq", seq, "--mode", mode,
                      "--steps", steps, "--threads", THREADS])


def median(runs, key):
    return statistics.median(r[key] for r in runs)


def verdict(value, bound):
    return f"{value:.2f} (at most {bound}: {'yes' if value <= bound else 'NO'})"


# Tuned PyTorch's tokens a second over those of llm.c's train_gpt2.c, on two cores of this kind.
TORCH_TO_LLM_C = {(1, 256): 228 / 31, (4, 256): 240 / 30, (1, 1024): 191 / 18.5}


def gpt2(batch, seq, rounds, steps):
    runs = {"stepzero": [], "plain": [], "hooks": []}
    for _ in range(rounds):
        runs["stepzero"].append(ours(batch, seq, steps))
        runs["plain"].append(torch(batch, seq, "plain", steps))
        runs["hooks"].append(torch(batch, seq, "hooks", steps))
    mine, plain, hooks = (median(runs[k], "median_s") for k in runs)
    bare = median(runs["stepzero"], "plain_median_s")
    made = median(runs["stepzero"], "made_median_s")
    products = median(runs["stepzero"], "products_s")
    alone = median(runs["stepzero"], "products_alone_s")
    gflops = median(runs["stepzero"], "product_gflops")
    peak = median(runs["stepzero"], "fma_peak_gflops")
    tokens = batch * seq
    print(f"GPT-2 124M, {batch} x {seq}, forward + backward, {THREADS} threads, median of {rounds} rounds of {steps} steps")
    print(f"  tokens a second: stepzero with all statistics {tokens / mine:.0f}, without {tokens / bare:.0f}, "
          f"with statistics and every weight gradient made {tokens / made:.0f}; "
          f"PyTorch tuned {tokens / plain:.0f}, with hooks {tokens / hooks:.0f}")
    print(f"  speed, ratio to PyTorch without hooks  {at_least(plain / mine, 1.3)}; to llm.c {at_least(plain / mine * TORCH_TO_LLM_C[batch, seq], 8)}; "
          f"with every weight gradient made {plain / made:.2f}, where the libraries' products alone leave {plain / alone:.2f}")
    print(f"  time, ratio to PyTorch with hooks      {verdict(mine / hooks, 0.8) if seq == 256 and batch == 1 else f'{mine / hooks:.2f}'}")
    print(f"  statistics, share of the pass          {verdict((mine - bare) / mine, 0.08)}")
    print(f"  libraries' products / those of the pass {alone / products:.2f} (at least 0.85: {'yes' if alone / products >= 0.85 else 'NO'})")
    print(f"  products: {gflops:.0f} GFLOP/s, {100 * gflops / peak:.0f} % of the FMA peak; the whole pass that makes every gradient: {100 * gflops * products / made / peak:.0f} %")
    memory = median(runs["stepzero"], "peak_rss_mb") / median(runs["plain"], "peak_rss_mb")
    print(f"  peak memory, ratio to PyTorch          {verdict(memory, 1.0)}\n", flush=True)


# EigenRand, the fastest peer known, made 1530 million normals a second on two cores with a peak of 382 GFLOP/s.
EIGENRAND_PER_GFLOP = 1530 / 382


def best(runs, key):
    return max(r[key] for r in runs)


def at_least(value, bound):
    return f"{value:.2f} (at least {bound}: {'yes' if value >= bound else 'NO'})"


def init_command(path, dtype):
    """Seconds of the whole command, and its largest memory in MB."""
    start = time.perf_counter()
    process = subprocess.Popen([BUILD / "stepzero", "init", "gpt2", "--dtype", dtype, "--threads", str(THREADS), "-o", path, "--quiet"],
                               stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit("init failed")
    return time.perf_counter() - start, usage.ru_maxrss / 1024


def init(rounds):
    print(f"-- init: numbers made, and GPT-2 124M written to memory-backed storage; {THREADS} threads, best of {rounds} rounds")
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(last_json([BUILD / "bench_init", "numbers", THREADS]))
        theirs.append(last_json(["/usr/bin/python3", ROOT / "bench" / "torch_init.py", "--threads", THREADS]))
    for dtype, bound in (("f32", 7), ("bf16", 30)):
        mine, peer = best(ours, dtype), best(theirs, dtype)
        print(f"  {dtype}: {mine:.0f} million normals a second, PyTorch's normal_ {peer:.0f}: {at_least(mine / peer, bound)}")
    peak = best(ours, "fma_peak_gflops")
    print(f"  f32, ratio to EigenRand's rate for {peak:.0f} GFLOP/s: {at_least(best(ours, 'f32') / (EIGENRAND_PER_GFLOP * peak), 1.0)}")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path, copy = (os.path.join(folder, name) for name in ("init.safetensors", "plain"))
        for dtype in ("f32", "bf16"):
            commands, writes = [], []
            for _ in range(rounds):
                commands.append(init_command(path, dtype))
                writes.append(last_json([BUILD / "bench_init", "write", copy, path]))
                size = os.path.getsize(path)
                os.remove(path)
                os.remove(copy)
            seconds = min(c[0] for c in commands)
            plain = min(w["seconds"] for w in writes)
            print(f"  {dtype}: {size / 1e6:.0f} MB by the whole command in {seconds:.3f} s ({size / seconds * 1e-9:.2f} GB/s, "
                  f"{max(c[1] for c in commands):.0f} MB of memory), by plain write() in {plain:.3f} s: ratio {at_least(plain / seconds, 0.7) if dtype == 'f32' else f'{plain / seconds:.2f}'}")
    print(flush=True)


def command(*words):
    """Seconds, megabytes and the JSON of a whole command."""
    start = time.perf_counter()
    process = subprocess.Popen([BUILD / "stepzero", *map(str, words), "--quiet", "--json"], stdout=subprocess.PIPE)
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, words
    return time.perf_counter() - start, usage.ru_maxrss / 1024, json.loads(out)


def predict(rounds):
    print(f"-- predict, whole commands at 128 tokens, {THREADS} threads, median of {rounds} rounds")
    fast, slow, large = [], [], []
    for _ in range(rounds):
        fast.append(command("predict", "gpt2", "--seq-len", 128))
        slow.append(command("measure", "gpt2", "--seq-len", 128))
        large.append(command("predict", "llama-3-405b", "--seq-len", 128))
    there, real = fast[0][2]["loss"]["predicted"], slow[0][2]["loss"]["measured"]
    assert abs(there - real) < 5 * fast[0][2]["loss"]["spread"] + 0.01, (there, real)
    mine, seed, huge = (statistics.median(r[0] for r in runs) for runs in (fast, slow, large))
    print(f"  gpt2: {mine * 1e3:.0f} ms, one measured seed {seed * 1e3:.0f} ms: {at_least(seed / mine, 20)}")
    print(f"  llama-3-405b: {huge:.2f} s (at most 1.5: {'yes' if huge <= 1.5 else 'NO'}), "
          f"{large[0][1]:.0f} MB (at most 200: {'yes' if large[0][1] <= 200 else 'NO'})")
    base = None
    for title, cases in (("depth, llama-2-7b", [("layers", n) for n in (16, 32, 64, 128)]),
                         ("width, llama-2-7b of 32 layers, heads of 128", [("width", n) for n in (1024, 4096, 16384)])):
        print(f"  {title}: ", end="")
        cells = []
        for key, n in cases:
            more = ("--set", f"heads={n // 128}", "--set", f"kv_heads={n // 128}", "--set", f"ffn={n * 8 // 3}") if key == "width" else ()
            # a product as large in every layer: q and k keep unit variance, so that all widths ask for the same attention
            seconds = statistics.median(command("predict", "llama-2-7b", "--seq-len", 128, "--scheme", "xavier-normal", "--set", f"{key}={n}", *more)[0]
                                        for _ in range(rounds))
            base = seconds if n == cases[0][1] else base
            cells.append(f"{n}: {seconds:.2f} s ({seconds / base:.2f})")
        print(", ".join(cells))
    print(flush=True)


def read_again(path):
    """The file as it lies in memory after being read from the disk: the system then keeps it in large pages where it can."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    while os.read(fd, 1 << 23):
        pass
    os.close(fd)


def audit(rounds):
    print(f"-- audit, 1 GB of bf16 in the page cache, {THREADS} threads, best of {rounds} rounds")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.safetensors")
        subprocess.run([BUILD / "stepzero", "init", "gpt2-medium", "--set", "layers=36", "--dtype", "bf16", "-o", path, "--quiet"], check=True,
                       stdout=subprocess.DEVNULL)
        written = [last_json([BUILD / "bench_audit", path, THREADS]) for _ in range(rounds)]
        mine = []
        for _ in range(rounds):
            read_again(path)
            mine.append(last_json([BUILD / "bench_audit", path, THREADS]))
        peer = min(last_json(["/usr/bin/python3", ROOT / "bench" / "torch_audit.py", path, THREADS])["seconds"] for _ in range(rounds))
        read_again(path)
        start = time.perf_counter()
        process = subprocess.Popen([BUILD / "stepzero", "audit", path, "--quiet", "--json", "--threads", str(THREADS)], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
    read, file, moments, everything = (best(mine, key) for key in ("read_gbs", "file_gbs", "moments_gbs", "all_gbs"))
    print(f"  memory is read at {read:.1f} GB/s, the mapped file at {file:.1f}")
    print(f"  moments {moments:.1f} GB/s, share of memory's rate      {at_least(moments / read, 0.6)}; of the file's {moments / file:.2f}")
    print(f"  all analyses of the tensors {everything:.1f} GB/s, share {at_least(everything / read, 0.15)}; of the file's {everything / file:.2f}")
    read, file, moments, everything = (best(written, key) for key in ("read_gbs", "file_gbs", "moments_gbs", "all_gbs"))
    print(f"  a file just written, in small pages: mapped {file:.1f} GB/s, moments {moments:.1f}, all {everything:.1f}: shares of memory's rate "
          f"{file / read:.2f}, {moments / read:.2f}, {everything / read:.2f}")
    ours = min(m["moments_s"] for m in mine)
    print(f"  PyTorch's mean, std, min, max: {peer:.2f} s, ours {ours:.3f} s, ratio {at_least(peer / ours, 6)}")
    print(f"  the whole command {seconds:.2f} s, {usage.ru_maxrss / 1024:.0f} MB of memory (at most 150: {'yes' if usage.ru_maxrss / 1024 <= 150 else 'NO'})\n", flush=True)


def stream(rounds):
    """The whole command against what it cannot do without, one after the other in every round."""
    model, tokens = "llama-2-7b", 128
    print(f"-- stream: measure {model}, {tokens} tokens, its weights made as the pass needs them; {THREADS} threads, median of {rounds} rounds", flush=True)
    alone, whole, ratios = [], [], []
    for _ in range(rounds):
        alone.append(last_json([BUILD / "bench_stream", model, tokens, THREADS]))
        whole.append(command("measure", model, "--seq-len", tokens, "--stream", "--threads", THREADS))
        ratios.append(whole[-1][0] / (alone[-1]["products_s"] + alone[-1]["normals_s"]))
        print(f"  a round: {whole[-1][0]:.1f} s, alone {alone[-1]['products_s']:.1f} + {alone[-1]['normals_s']:.1f} s, ratio {ratios[-1]:.2f}", flush=True)
    seconds, memory = statistics.median(w[0] for w in whole), max(w[1] for w in whole) * 2**20 * 1e-9
    products, normals = median(alone, "products_s"), median(alone, "normals_s")
    print(f"  its products alone {products:.1f} s ({alone[0]['tflop']:.2f} TFLOP at {alone[0]['tflop'] / products * 1000:.0f} GFLOP/s), "
          f"its normals alone {normals:.1f} s ({alone[0]['billion_normals']:.1f} billion)")
    print(f"  the whole command {seconds:.1f} s, ratio to both  {verdict(statistics.median(ratios), 1.5)}")
    print(f"  peak memory, GB                       {verdict(memory, 3)}\n", flush=True)


def slope(xs, ys):
    """Of ln y over ln x."""
    x, y = [math.log(v) for v in xs], [math.log(v) for v in ys]
    mx, my = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mx) * (b - my) for a, b in zip(x, y)) / sum((a - mx) ** 2 for a in x)


def cost(rounds):
    base = {"layers": 8, "width": 512, "seq-len": 256, "seeds": 1}
    print(f"-- cost of measure: a LLaMA of {base['layers']} layers, width {base['width']}, {base['seq-len']} tokens, one draw; one of the four is changed at a time; "
          f"{THREADS} threads, median of {rounds} rounds\n", flush=True)
    print("| | | | | | seconds ~ x^ | last doubling | megabytes ~ x^ |\n|---|---|---|---|---|---|---|---|")
    for key, values in (("layers", (4, 8, 16, 32)), ("width", (256, 512, 1024, 2048)), ("seq-len", (128, 256, 512, 1024)), ("seeds", (2, 4, 8, 16))):
        runs = {v: [] for v in values}
        for _ in range(rounds):
            for v in values:
                now = {**base, key: v}
                width = now["width"]
                runs[v].append(command("measure", "llama-2-7b", "--scheme", "xavier-normal", "--seq-len", now["seq-len"], "--seeds", now["seeds"], "--threads", THREADS,
                                       *(word for field in (f"layers={now['layers']}", f"width={width}", f"heads={width // 64}", f"kv_heads={width // 64}",
                                                            f"ffn={4 * width}", "vocab=4096") for word in ("--set", field))))
        seconds = [statistics.median(r[0] for r in runs[v]) for v in values]
        memory = [max(r[1] for r in runs[v]) for v in values]
        cells = " | ".join(f"{v}: {t:.2f} s, {m:.0f} MB" for v, t, m in zip(values, seconds, memory))
        print(f"| {key} | {cells} | {slope(values, seconds):.2f} | {math.log2(seconds[-1] / seconds[-2]):.2f} | {slope(values, memory):.2f} |", flush=True)
    print(flush=True)


def gpt2_all(rounds):
    for batch, seq, steps in ((1, 256, 5), (4, 256, 3), (1, 1024, 3)):
        gpt2(batch, seq, rounds, steps)


# A model, its batch, updates a run, models side by side, and how many times as fast as PyTorch it shall be.
TRAININGS = {
    "GPT-2 124M, 1 x 256": ([], 1, 256, 8, 1, 1.2),
    "GPT-2 124M, 4 x 256": ([], 4, 256, 6, 1, 1.2),
    "4 layers of width 128, 12 x 64": (["layers=4", "width=128", "heads=4", "vocab=65", "positions=64"], 12, 64, 100, 1, 4),
    "64 such models side by side": (["layers=4", "width=128", "heads=4", "vocab=65", "positions=64"], 12, 64, 20, 64, 8),
}


def train(rounds):
    """The same weights, tokens and AdamW: the losses must agree, then the time of an update is compared."""
    print(f"-- train: AdamW, no statistics, {THREADS} threads, median of {rounds} rounds, in turn with PyTorch\n", flush=True)
    for title, (fields, batch, seq, steps, models, bound) in TRAININGS.items():
        with tempfile.TemporaryDirectory() as scratch:
            path, ids = pathlib.Path(scratch) / "model", pathlib.Path(scratch) / "ids.txt"
            model = ["gpt2"] + [word for field in fields for word in ("--set", field)]
            subprocess.run([BUILD / "stepzero", "init", *model, "-o", path, "--quiet"], check=True, stdout=subprocess.DEVNULL)
            vocab = json.loads((path / "config.json").read_text()).get("vocab_size", 50257)
            state = 12345
            with open(ids, "w") as file:
                for _ in range(batch):
                    line = []
                    for _ in range(seq + 1):
                        state = (state * 1103515245 + 12345) % 2**31
                        line.append(str((state >> 8) % vocab))
                    file.write(" ".join(line) + "\n")
            mine, theirs, memory, their_memory = [], [], [], []
            for _ in range(rounds):
                other = last_json(["/usr/bin/python3", ROOT / "bench" / "torch_train.py", path, ids, "--steps", steps, "--threads", THREADS, "--models", models])
                if models == 1:
                    seconds, megabytes, runs = train_ours(path, ids, steps, models)
                    losses = [s["loss"] for s in runs[0]["steps"]]
                    # later on a batch is learned by heart, and rounding grows: PyTorch's losses on one and on two threads are 0.01 apart
                    worst = max(abs(a - b) for a, b in zip(losses[:20], other["losses"]))
                    assert worst < 1e-3, f"the losses are {worst} apart"
                    mine.append(batch * seq / runs[0]["tokens_per_second"])
                else:
                    # two processes of one thread each are faster for PyTorch than one of two
                    pair = [subprocess.Popen(["/usr/bin/python3", ROOT / "bench" / "torch_train.py", path, ids, "--steps", str(steps), "--threads", "1",
                                              "--models", str(models // 2)], stdout=subprocess.PIPE, text=True) for _ in range(2)]
                    halves = [json.loads(p.communicate()[0].strip().splitlines()[-1]) for p in pair]
                    other["median_s"] = min(other["median_s"], max(h["median_s"] for h in halves) / 2)
                    long, megabytes, _ = train_ours(path, ids, steps, models)
                    short, _, _ = train_ours(path, ids, 1, models)
                    mine.append((long - short) / (steps - 1) / models)
                theirs.append(other["median_s"])
                memory.append(megabytes)
                their_memory.append(other["peak_rss_mb"])
            ratio = statistics.median(theirs) / statistics.median(mine)
            print(f"{title}: an update {1000 * statistics.median(mine):.1f} ms, ratio to PyTorch {at_least(ratio, bound)}; "
                  f"memory {verdict(statistics.median(memory) / statistics.median(their_memory), 1.0)}", flush=True)
    print(flush=True)


def train_ours(path, ids, steps, models):
    seconds, megabytes, out = command("train", path, "--weights", path / "model.safetensors", "--tokens", ids, "--steps", steps, "--rate", 1e-3,
                                      "--seeds", models, "--threads", THREADS)
    return seconds, megabytes, out["runs"]


def main():
    parts = {"train": (train, 3), "init": (init, 7), "predict": (predict, 5), "audit": (audit, 3), "stream": (stream, 1), "cost": (cost, 3), "gpt2": (gpt2_all, 3)}
    if sys.argv[1:2] and sys.argv[1] in parts:
        part, rounds = parts[sys.argv[1]]
        return part(int(sys.argv[2]) if len(sys.argv) > 2 else rounds)
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    init(rounds)
    predict(rounds)
    audit(rounds)
    stream(1)
    for program in ("random", "statistics"):
        print(f"-- {program}", flush=True)
        subprocess.run([BUILD / f"bench_{program}"], check=True)
        print(flush=True)
    gpt2_all(rounds)


if __name__ == "__main__":
    main()
