#!/usr/bin/env python3
"""The portable build needs no library but the standard one and predicts what the usual build does. Run by `./dev portable`, or by hand:

    python3 tests/portable/portable_test.py LIBRARY PROGRAM
"""
import ctypes
import json
import os
import re
import subprocess
import sys

library, program = sys.argv[1:3]
RULES = 1e-12  # where rules decide
CANCELLED = 1e-10  # rules too, but gradients that nearly cancel: of an image's queries, over 197 tokens
SAMPLED = 1e-7  # where heads or kernels are sampled
DECOMPOSED = 1e-6  # batch norm's eigenvalues: another decomposition than LAPACK's
failed = []

needed = re.findall(r"NEEDED\s+(\S+)", subprocess.run(["objdump", "-p", library], capture_output=True, text=True, check=True).stdout)
allowed = ("libstdc++.", "libm.", "libc.", "libgcc_s.", "ld-linux", "libmvec.")
if foreign := [name for name in needed if not name.startswith(allowed)]:
    failed.append(f"needs {foreign}")

lib = ctypes.CDLL(os.path.abspath(library))
lib.sz_predict.restype = ctypes.c_void_p
lib.sz_predict.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
lib.sz_text.restype = ctypes.c_char_p
lib.sz_text.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
lib.sz_status.argtypes = lib.sz_free.argtypes = [ctypes.c_void_p]


def predicted(request):
    result = lib.sz_predict(json.dumps(request).encode(), None)
    text = lib.sz_text(result, b"error" if lib.sz_status(result) else b"json").decode()
    lib.sz_free(result)
    return json.loads(text)


def expected(request):
    words = [program, "predict", request["model"], "--json", "--quiet", "--no-remedies", "--effort", str(request["effort"]), "--scheme", request["scheme"]]
    words += [word for setting in request["set"] for word in ("--set", setting)]
    words += ["--seq-len", str(request["seq_len"])] if "seq_len" in request else []
    return json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def difference(a, b, path=""):
    """The largest of all values, and where. A value's scale is its own size, of a cosine 1, of a mean the root of the mean square; a spread
    is held against its value too."""
    if isinstance(a, dict) and "mean" in a and "second_moment" in a:
        rms = a["second_moment"]["predicted"] ** 0.5
        mean = max(abs(a["mean"][key] - b["mean"][key]) / rms for key in a["mean"])
        return max((mean, path + "/mean"), *(difference(a[key], b[key], f"{path}/{key}") for key in a if key != "mean"))
    if isinstance(a, dict) and "predicted" in a:
        scale = 1 if path.endswith("cosine") else max(abs(a["predicted"]), abs(a.get("spread", 0)), 1e-12)
        return max(((abs(a[key] - b[key]) / scale, path) for key in a), default=(0, path))
    items = a.items() if isinstance(a, dict) else enumerate(a) if isinstance(a, list) else ()
    return max((difference(value, b[key], f"{path}/{value.get('name', key) if isinstance(value, dict) else key}") for key, value in items if key != "findings"), default=(0, path))


cases = [("gpt2", [], "hf", RULES), ("bert-base", [], "hf", RULES), ("opt-125m", [], "deepnet", RULES), ("gpt2", ["layers=4", "norm_placement=post"], "xavier-normal", SAMPLED),
         ("llama-3-8b", [], "hf", SAMPLED), ("t5-small", [], "hf", SAMPLED), ("mixtral-8x7b", [], "hf", SAMPLED), ("gemma-2b", [], "hf", SAMPLED), ("mistral-7b", ["layers=4"], "he", SAMPLED),
         ("resnet-8", [], "hf", DECOMPOSED), ("lenet", [], "hf", SAMPLED), ("vit-base", ["layers=2"], "hf", CANCELLED), ("deepseek-v2-lite", ["layers=3"], "hf", SAMPLED)]
for model, settings, scheme, bound in cases:
    request = {"model": model, "set": settings, "scheme": scheme, "effort": 0.01}
    if not model.startswith(("resnet", "lenet", "vit")):
        request["seq_len"] = 16
    off, where = difference(predicted(request), expected(request))
    print(f"{'ok  ' if off <= bound else 'FAIL'} {' '.join([model, *settings, scheme]):50} {off:.1e} of {bound:.0e} {where}")
    if not off <= bound:
        failed.append(model)
print("\n".join(f"FAILED {problem}" for problem in failed))
sys.exit(1 if failed else 0)
