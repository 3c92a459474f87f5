#!/usr/bin/python3
"""./dev accuracy --families [DRAWS [NAMES]]: predict against real draws of the families whose file reads their config.json, six layers of width
256 and 64 tokens, as Markdown. Errors are net of the measurement's noise, as in docs/accuracy.md, and judged by its bounds."""
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
STEPZERO = ROOT / "build" / "release" / "stepzero"
SIZES = {
    256: ("hidden_size", "n_embd", "d_model", "dim", "embedding_size"),
    6: ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"),
    4: ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads"),
    2: ("num_key_value_heads",),
    64: ("head_dim",),
    704: ("intermediate_size",),
    1024: ("ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "hidden_dim", "n_inner"),
    176: ("moe_intermediate_size",),
    2000: ("vocab_size",),
    128: ("max_position_embeddings", "n_positions", "max_seq_len"),
}
OF_SCORES = ("q_proj", "k_proj", "q_lin", "k_lin", "self.query", "self.key")
BY_LAYER = ("layer_types", "no_rope_layers", "mlp_only_layers", "attention_types")
BOUNDS = {"E[x²]": (0.01, 0.04), "E[δ²]": (0.01, 0.05), "weights": (0.015, 0.06), "q, k weights": (0.04, 0.15), "loss": (0.005, 0.03),
          "global norm": (0.01, 0.04)}


def medium(config):
    """The sizes that every family gets; lists that name each layer are left to the family."""
    out = {k: v for k, v in config.items() if k not in BY_LAYER}
    for size, keys in SIZES.items():
        out.update({k: size for k in keys if k in out})
    if out["model_type"] == "gpt_neo":
        out["attention_types"] = [[["global", "local"], 3]]
    if out["model_type"] == "mamba2":
        out["num_heads"] = 8
    if out["model_type"] == "gpt_oss":
        out["intermediate_size"] = 176
    if out["model_type"] == "dinov2":
        out["image_size"], out["patch_size"] = 56, 8
    if "vision_config" in out:
        out["vision_config"] = medium({**out["vision_config"], "image_size": 56, "patch_size": 8})
    return out


def file_of(config):
    """Of a file of two towers that of the one that is run."""
    kind = config["model_type"]
    return f"{kind}_vision_model" if kind in ("clip", "siglip") else kind


def is_of_images(config):
    return "image_size" in config or "vision_config" in config


def error(value, relative=True):
    """Net of the noise; None where there is nothing to tell."""
    if not value or value.get("predicted") is None or not value.get("measured"):
        return None
    scale = abs(value["measured"]) if relative else 1
    off = (value["predicted"] - value["measured"]) / scale
    return math.sqrt(max(0, off**2 - ((value.get("stderr") or 0) / scale) ** 2))


def together(parameters):
    """The experts of a layer as one tensor: which of them the tokens take is another matter in every draw."""
    out = {}
    for p in parameters:
        name = re.sub(r"experts\.\d+", "experts", p["name"])
        value = p["gradient_norm"]
        if name not in out or value.get("predicted") is None or not value.get("measured"):
            out[name] = {**p, "name": name, "gradient_norm": dict(value)}
            continue
        sum_ = out[name]["gradient_norm"]
        noise = sum_["stderr"] * sum_["measured"] + value["stderr"] * value["measured"]  # as if all were off together
        for key in ("predicted", "measured"):
            sum_[key] = math.hypot(sum_[key], value[key])
        sum_["stderr"] = noise / sum_["measured"]
    return out.values()


def errors(signal):
    out = {kind: [] for kind in BOUNDS}
    for node in signal["nodes"]:
        out["E[x²]"].append(error(node["forward"].get("second_moment")))
        out["E[δ²]"].append(error((node.get("backward") or {}).get("second_moment")))
    for p in together(signal["parameters"]):
        scores = any(word in p["name"] for word in OF_SCORES)
        if len(p["shape"]) > 1:  # of vectors, some of whose gradients are rounding noise, docs/accuracy.md judges nothing
            out["q, k weights" if scores else "weights"].append(error(p["gradient_norm"]))
    out["loss"].append(error(signal["loss"], relative=False))
    out["global norm"].append(error(signal["gradient_norm"]))
    return {kind: sorted(e for e in list_ if e is not None) for kind, list_ in out.items()}


def percentile(values, p):
    return values[min(len(values) - 1, int(p * len(values)))] if values else 0


def row(name, found):
    cells = [f"{100 * percentile(v, .5):.1f}{f' / {100 * percentile(v, .99):.1f}' if len(v) > 1 else ''}" if v else "" for v in found.values()]
    return f"| {name} | {' | '.join(cells)} |"


def main():
    draws = sys.argv[1] if len(sys.argv) > 1 else "120"
    configs = {name: case["config"] for name, case in json.loads((ROOT / "tests/models/transformers_4.57.json").read_text()).items()}
    own = [name for name in configs if 'key("' in read(ROOT / f"stepzero/families/{file_of(configs[name])}.py")]
    own = [name for name in own if len(sys.argv) < 3 or name in sys.argv[2:]]
    print(f"| {draws} draws, % (loss: 0.01 nats) | {' | '.join(BOUNDS)} |\n|---{'|---' * len(BOUNDS)}|")
    every = {kind: [] for kind in BOUNDS}
    with tempfile.TemporaryDirectory() as folder:
        for name in own:
            path = pathlib.Path(folder) / "config.json"
            path.write_text(json.dumps(medium(configs[name])))
            of = ["--batch", "4"] if is_of_images(configs[name]) else ["--seq-len", "64"]
            of += ["--batch", "8"] if configs[name]["model_type"].endswith("_text_model") else []  # one label a text
            done = subprocess.run([STEPZERO, "compare", path, *of, "--seeds", draws, "--json", "--quiet"], capture_output=True, text=True)
            if "stepzero measure runs the model" in done.stderr:
                print(f"| {name} | refused: {done.stderr.splitlines()[0]} |", flush=True)
                continue
            if not done.stdout:
                sys.exit(f"{name}: {done.stderr}")
            found = errors(json.loads(done.stdout))
            print(row(name, found), flush=True)
            for kind, list_ in found.items():
                every[kind] = sorted(every[kind] + list_)
    print(row("all", every))
    missed = [kind for kind, (median, most) in BOUNDS.items() if percentile(every[kind], .5) > median or percentile(every[kind], .99) > most]
    print(f"\nBounds missed: {', '.join(missed)}." if missed else "\nAll bounds are met.")
    return 1 if missed else 0


def read(path):
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
