"""What the harness runs: command lines that write files, what lay there before (OLD) and what an undisturbed run leaves (NEW); and how a folder is
judged afterwards."""
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import subprocess

MODEL = ["gpt2", *(word for field in ("layers=1", "width=32", "heads=2", "vocab=64", "positions=16") for word in ("--set", field))]
BYTES = [*MODEL, "--set", "vocab=256"]
SMALL = ["--seq-len", "8", "--quiet"]
TRAIN = ["train", *BYTES, "--seq-len", "8", "--batch", "1", "--save-every", "100", "--text", "text.txt", "--validation", "0", "--quiet", "--steps"]
TEMPORARY = re.compile(r"\..+\.\d+-[0-9a-f]{8}\.tmp")
PATIENCE = 60  # seconds, beyond anything that these models take on a busy machine: longer is a hang


@dataclasses.dataclass
class Work:
    """`before` lays OLD, `words` is the command; `index`: the file that makes a directory a checkpoint; `resume`: what a user types instead of
    `words` to go on once this file is there."""
    name: str
    words: list
    before: list = dataclasses.field(default_factory=list)
    index: str = None
    drop: tuple = ()  # taken away after `before`
    resume: tuple = ()


def shards(seed, width=32):
    return ["init", *MODEL, "--set", f"width={width}", "--seed", str(seed), "--max-shard-size", "20000", "--quiet", "-o", "out"]


INDEX = "out/model.safetensors.index.json"
WORKS = [
    Work("init, a file", ["init", *MODEL, "--quiet", "-o", "w.safetensors"]),
    Work("init --force, a file", ["init", *MODEL, "--force", "--quiet", "-o", "w.safetensors"], [["init", *MODEL, "--seed", "7", "--quiet", "-o", "w.safetensors"]]),
    Work("init, shards", shards(0), index=INDEX),
    Work("init, shards, some there", shards(0), [shards(0)], index=INDEX,
         drop=(INDEX, "out/model-00002-of-00004.safetensors", "out/model-00004-of-00004.safetensors")),
    Work("init --force, shards", [*shards(0), "--force"], [shards(7)], index=INDEX),
    Work("init --force, another model", ["init", *MODEL, "--force", "--quiet", "-o", "out"],
         [["init", *MODEL, "--set", "width=16", "--quiet", "-o", "out"]], index="out/model.safetensors"),
    Work("train --save", [*TRAIN, "2", "--save", "run"], resume=("run/state.safetensors", [*TRAIN, "2", "--resume", "run"])),
    Work("train --resume", [*TRAIN, "4", "--resume", "run"], [[*TRAIN, "2", "--save", "run"]]),
    Work("report", ["report", *MODEL, *SMALL, "--no-remedies", "-o", "page.html"], [["report", *MODEL, "--seq-len", "4", "--quiet", "--no-remedies", "-o", "page.html"]]),
    Work("audit --html", ["audit", "w.safetensors", "--html", "page.html", "--quiet"],
         [["init", *MODEL, "--quiet", "-o", "w.safetensors"], ["audit", "w.safetensors", "--moments", "--html", "page.html", "--quiet"]]),
    Work("solve", ["solve", *MODEL, "--seq-len", "8", "--objective", "depth", "-o", "scheme.json", "--torch", "weights.py"],
         [["solve", *MODEL, "--seq-len", "4", "--objective", "flat", "-o", "scheme.json"]]),
    Work("transfer", ["transfer", *MODEL, "--target-set", "width=64", "-o", "table.json"], [["transfer", *MODEL, "--target-set", "width=128", "-o", "table.json"]]),
    Work("explorer", ["explorer", "-o", "page.html"]),
]


class Program:
    def __init__(self, path):
        self.path = str(pathlib.Path(path).resolve())
        # one thread: the k-th call is the same one in every run; the variable that main would set before it starts once more
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "GOMP_SPINCOUNT": "1000", "LC_ALL": "C.UTF-8"}

    def run(self, words, folder, prefix=(), **environment):
        """The exit code (negative: a signal; None: it hangs), standard output, standard error."""
        process = subprocess.Popen([*prefix, self.path, *words], cwd=folder, env={**self.environment, **environment}, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        try:
            out, error = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return None, "", ""
        return process.returncode, out.decode(errors="replace"), error.decode(errors="replace")


def without_speed(data):
    """A state of a training run without how fast the run was, which is all that two runs may differ by."""
    size = int.from_bytes(data[:8], "little")
    head = data[8:8 + size]
    if len(head) < size or b"tokens_per_second" not in head:
        return data
    return re.sub(rb'(tokens_per_second\\":)[^,}]*', rb"\1", head).rstrip() + data[8 + size:]


def files(folder):
    """path -> bytes of all that lies in a folder"""
    folder = pathlib.Path(folder)
    return {str(path.relative_to(folder)): without_speed(path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


class Case:
    """A work with its OLD and its NEW, in a folder of its own."""

    def __init__(self, program, work, folder):
        self.program, self.work = program, work
        self.folder = pathlib.Path(folder)
        self.template = self.folder / "old"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.template.mkdir(parents=True)
        (self.template / "text.txt").write_text("To be whole or not to be at all, that is the promise. " * 40)
        for words in work.before:
            self._fine(words, self.template)
        for name in work.drop:
            (self.template / name).unlink()
        self.old = files(self.template)
        self.code = 0
        self.new = self._undisturbed()
        if self._undisturbed() != self.new:
            raise SystemExit(f"{work.name}: two runs write different bytes")

    def _fine(self, words, folder):
        code, _, error = self.program.run(words, folder)
        if code not in (0, 1):
            raise SystemExit(f"{self.work.name}: {words}: code {code}: {error}")
        return code

    def _undisturbed(self):
        folder = self.fresh("new")
        self.code = self._fine(self.work.words, folder)
        found = files(folder)
        shutil.rmtree(folder)
        return found

    def fresh(self, name="run"):
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.template, folder)
        return folder

    def judge(self, found, leftovers=False):
        """What is wrong with these files: each must be OLD or NEW, and a checkpoint that looks whole of one piece."""
        wrong = []
        for name in sorted({*found, *self.old, *self.new}):
            if name not in self.old and name not in self.new:
                if not (leftovers and TEMPORARY.fullmatch(name.rsplit("/", 1)[-1])):
                    wrong.append(f"{name} is left")
            elif found.get(name) not in (self.old.get(name), self.new.get(name)) and not (name in self.replaced() and name not in found):
                wrong.append(f"{name} is neither OLD nor NEW ({'missing' if name not in found else f'{len(found[name])} bytes'})")
        if not wrong and self.work.index in found:
            mine = self.replaced() | {self.work.index}
            if not any(all(found.get(name) == state.get(name) for name in mine) for state in (self.old, self.new)):
                wrong.append("a checkpoint of OLD and NEW")
        return wrong

    def replaced(self):
        """Files of a directory whose commit point is another one: they may be missing as long as that one is."""
        if not self.work.index:
            return set()
        return {name for name in {*self.old, *self.new} if name.startswith("out/")}

    def is_new(self, found):
        return all(found.get(name) == data for name, data in self.new.items())
