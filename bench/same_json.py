#!/usr/bin/env python3
"""Whether two builds say the same of every family: the JSON of predict and measure, byte by byte.

    bench/same_json.py OLD NEW [CONFIGS...]

OLD and NEW are two builds of the program. The models are those of tests/models, variants too, with a few other schemes, and the directories
that are named, as of ../shared/data/parity: their weights and tokens are measured. Prints what differs; exit code 1 if anything does."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCHEMES = ["hf", "xavier-normal", "deepnet", "mup"]


def run(program, words):
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([program, *words, "--json", "--quiet"], capture_output=True, env=env)
    return done.returncode, done.stdout, done.stderr


def configurations(folder):
    """(name, config.json, more words of measure)"""
    for file in ["transformers_4.57.json", "variants.json"]:
        for name, case in json.loads((ROOT / "tests/models" / file).read_text()).items():
            path = folder / f"{file[:4]}_{name}" / "config.json"
            path.parent.mkdir()
            path.write_text(json.dumps(case["config"]))
            yield f"{file[:4]} {name}", path, []
    for where in sys.argv[3:]:
        for each in sorted(pathlib.Path(where).iterdir()):
            words = ["--weights", str(each / "model.safetensors")]
            for flag, file in [["--tokens", "tokens.txt"], ["--encoder-tokens", "encoder_tokens.txt"], ["--pixels", "pixels.f32"],
                               ["--labels", "labels.txt"], ["--features", "features.f32"]]:
                if (each / file).exists():
                    words += [flag, str(each / file)]
            yield f"{each.parent.name} {each.name}", each / "config.json", words


def main():
    old, new = sys.argv[1:3]
    same = different = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, config, words in configurations(pathlib.Path(folder)):
            jobs = [["measure", *words], ["predict"]] if words else [[verb, "--scheme", s] for s in SCHEMES for verb in ["predict", "measure"]]
            jobs = [[job[0], str(config), *job[1:], *([] if words else ["--seq-len", "8"])] for job in jobs]
            if not words and "image" in json.dumps(json.loads(config.read_text())):
                jobs = [job[:-2] for job in jobs]
            for job in jobs:
                a, b = run(old, job), run(new, job)
                if a == b:
                    same += 1
                else:
                    different += 1
                    print(f"{name}: {' '.join(job)}\n  {a[2].decode()[:200]}\n  {b[2].decode()[:200]}")
    print(f"{same} the same, {different} different")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
