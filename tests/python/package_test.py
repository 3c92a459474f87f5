#!/usr/bin/env python3
"""The Python package: the same numbers as the program's, errors, interrupts, weights in place.

    python3 tests/python/package_test.py BUILD

BUILD holds the program and the library behind C. Standard library only."""
import ctypes
import doctest
import io
import json
import math
import os
import pathlib
import pickle
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else ROOT / "build" / "release"
os.environ["STEPZERO_LIBRARY"] = str(BUILD / "libstepzero_c.so")
os.environ["PYTHONPATH"] = str(ROOT / "python")
sys.path.insert(0, str(ROOT / "python"))
import stepzero  # noqa: E402
from stepzero import _lib, errors, results  # noqa: E402

TINY = {"layers": 2, "width": 48, "heads": 4, "vocab": 97, "positions": 16}


def program(*words):
    done = subprocess.run([str(BUILD / "stepzero"), *words], capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def tiny_words():
    return [word for key, value in TINY.items() for word in ("--set", f"{key}={value}")]


class Signals(unittest.TestCase):
    def test_are_the_programs(self):
        model = stepzero.load("gpt2", set=TINY, scheme="xavier-normal")
        for verb, own in (("predict", model.predict(seq_len=8)), ("measure", model.measure(seq_len=8, seeds=2))):
            words = [verb, "gpt2", *tiny_words(), "--scheme", "xavier-normal", "--seq-len", "8", "--json", "--quiet"]
            theirs = json.loads(program(*words, *(["--no-remedies"] if verb == "predict" else ["--seeds", "2"])))
            for part in ("loss", "gradient_norm", "attention", "parameters", "nodes"):
                self.assertEqual(own.raw[part], theirs[part], f"{verb} {part}")

    def test_are_plain_data(self):
        both = stepzero.load("gpt2", set=TINY).compare(seq_len=8, seeds=4)
        node = both.nodes["stream.1"]
        self.assertIs(both.nodes[both.nodes.names().index("stream.1")], node)
        self.assertAlmostEqual(node.forward.second_moment.predicted / node.forward.second_moment.measured, 1, delta=0.3)
        self.assertIsNotNone(node.forward.second_moment.z)
        self.assertEqual([n.name for n in both.stream], ["stream.0", "stream.1", "stream.2"])
        self.assertTrue(both.raw["comparison"])
        rows = both.to_rows()
        self.assertIn({"where", "what", "predicted", "spread", "measured", "stderr"}, [set(r) for r in rows])
        self.assertIn("stream", repr(both))

    def test_show_themselves_without_the_network(self):
        text = stepzero.load("gpt2", set=TINY).predict(seq_len=8)._repr_html_()
        self.assertIn("<svg", text)
        self.assertNotIn("http", text)
        self.assertNotIn("<script", text)

    def test_architecture_files_and_reports(self):
        page = stepzero.load(ROOT / "examples" / "architectures" / "gate.py", set={"layers": 2, "width": 64, "heads": 4, "vocab": 97}).report(seq_len=8)
        self.assertIn("<html", page.html)
        self.assertIn("arch(", stepzero.load("llama-3-8b").describe())
        self.assertEqual(stepzero.load("gpt2", set=TINY).graph()["schema"], "stepzero.graph/1")

    def test_lists(self):
        names = [m["name"] for m in stepzero.models()]
        self.assertIn("gpt2", names)
        self.assertGreater(len(names), 100)
        self.assertIn("xavier-normal", [s["name"] for s in stepzero.schemes()])


class Training(unittest.TestCase):
    def test_trains(self):
        got = stepzero.load("gpt2", set={k: v for k, v in TINY.items() if k != "vocab"}).train(steps=12, batch=4, seq_len=8, rate=3e-3, seeds=2)
        self.assertEqual(len(got.runs), 2)
        self.assertEqual(len(got.losses()), 13)
        self.assertLess(got.losses()[-1], got.losses()[0])
        self.assertIn("seed 1", repr(got))
        self.assertIn("<html", got.html)

    def test_steps(self):
        step = stepzero.load("gpt2", set=TINY).measure(seq_len=8, steps=1, optimizer="adamw", rate=1e-3).raw["steps"][0]
        self.assertGreater(step["streams"][-1]["relative"]["measured"], 0)


class Weights(unittest.TestCase):
    def tensor(self, path, name):
        data = path.read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        first, last = json.loads(data[8:8 + length])[name]["data_offsets"]
        return data[8 + length + first:8 + length + last]

    def test_in_place_have_the_bits_of_init(self):
        for scheme in ("hf", "orthogonal", "deepnet"):
            model = stepzero.load("gpt2", set=TINY, scheme=scheme)
            for dtype, size in (("f32", 4), ("bf16", 2), ("f16", 2)):
                with tempfile.TemporaryDirectory() as folder:
                    path = pathlib.Path(folder) / "w.safetensors"
                    model.init(path, seed=5, dtype=dtype)
                    for tensor in model.tensors():
                        count = math.prod(tensor["shape"])
                        memory = ctypes.create_string_buffer(count * size)
                        model.fill(tensor["name"], ctypes.addressof(memory), count, seed=5, dtype=dtype)
                        self.assertEqual(memory.raw, self.tensor(path, tensor["name"]), f"{scheme} {dtype} {tensor['name']}")

    def test_any_stretch(self):
        model = stepzero.load("gpt2", set=TINY)
        name, count = "transformer.wte.weight", 97 * 48
        whole, part = (ctypes.c_float * count)(), (ctypes.c_float * 100)()
        model.fill(name, ctypes.addressof(whole), count)
        model.fill(name, ctypes.addressof(part), 100, first=1234)
        self.assertEqual(list(part), list(whole)[1234:1334])
        with self.assertRaisesRegex(stepzero.StepzeroError, "has 4656 elements"):
            model.fill(name, ctypes.addressof(part), 100, first=count - 99)

    def test_audit(self):
        with tempfile.TemporaryDirectory() as folder:
            model = stepzero.load("gpt2", set=TINY)
            model.init(folder, replace=True)
            found = stepzero.audit(folder)
            self.assertEqual([f for f in found.findings if f.severity == "error"], [])
            self.assertEqual(len(found.tensors), len(model.tensors()))


class Errors(unittest.TestCase):
    def test_have_a_hint(self):
        with self.assertRaises(stepzero.StepzeroError) as caught:
            stepzero.load("gtp2")
        self.assertIn("did you mean gpt2", str(caught.exception))
        with self.assertRaisesRegex(stepzero.StepzeroError, "unknown key .*\\n? *did you mean seq_len"):
            stepzero.load("gpt2").predict(seqlen=8)
        with self.assertRaisesRegex(stepzero.StepzeroError, "expected a whole number"):
            stepzero.load("gpt2").predict(seq_len="long")
        with self.assertRaisesRegex(stepzero.StepzeroError, "layers"):
            stepzero.load("gpt2", set={"layers": 0})
        with self.assertRaises(stepzero.StepzeroError):
            stepzero.audit("/nowhere")

    def test_travel(self):
        for error in (errors.StepzeroError("what", "hint"), errors.BusyError("busy")):
            again = pickle.loads(pickle.dumps(error))
            self.assertEqual((type(again), str(again)), (type(error), str(error)))
            self.assertIsInstance(again, ValueError)

    def test_a_missing_library_is_told(self):
        done = subprocess.run([sys.executable, "-c", "import stepzero; stepzero._lib._candidates = lambda: []; stepzero.load('gpt2')"],
                              capture_output=True, text=True)
        self.assertIn("libstepzero_c.so was not found", done.stderr)


LONG = {
    "predict": "stepzero.load('llama-3-8b').predict(seq_len=512, whole=True)",
    "measure": "stepzero.load('gpt2').measure(seeds=1000)",
    "train": "stepzero.load('gpt2', set={'layers': 2}).train(steps=100000, seq_len=64)",
    "init": "stepzero.load('llama-2-7b').init(FOLDER, dtype='bf16')",
}


class Interrupts(unittest.TestCase):
    def test_end_every_call_and_leave_nothing(self):
        for name, call in LONG.items():
            with tempfile.TemporaryDirectory() as folder:
                code = ("import signal, stepzero, time\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
                        f"FOLDER = {folder + '/out'!r}\nstepzero.load('gpt2')\nprint('on', flush=True)\ntry:\n    {call}\nexcept KeyboardInterrupt:\n    print('stopped', flush=True)\n")
                job = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
                self.assertEqual(job.stdout.readline(), "on\n")
                time.sleep(0.7)
                job.send_signal(signal.SIGINT)
                self.assertEqual(job.stdout.readline(), "stopped\n", name)
                self.assertEqual(job.wait(30), 0, name)
                left = [p for p in pathlib.Path(folder).rglob("*") if p.is_file()]
                self.assertEqual(left, [], name)

    def test_other_threads_run_meanwhile(self):
        ticks, done = [], threading.Event()

        def tick():
            while not done.wait(0.001):
                ticks.append(1)

        clock = threading.Thread(target=tick)
        clock.start()
        stepzero.load("llama-3-8b", set={"layers": 4}).predict(seq_len=64)
        done.set()
        clock.join()
        self.assertGreater(len(ticks), 10)


class Package(unittest.TestCase):
    def test_its_examples_run(self):
        for module in (stepzero, results, errors, _lib):
            failed, seen = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
            self.assertEqual(failed, 0, module.__name__)
        self.assertGreater(doctest.testmod(stepzero, optionflags=doctest.ELLIPSIS)[1], 3)

    def test_a_wheel_is_all_that_is_needed(self):
        sys.path.insert(0, str(ROOT / "python"))
        import stepzero_build

        os.environ["STEPZERO_BUILD"] = str(pathlib.Path(os.environ["STEPZERO_LIBRARY"]).parent)
        with tempfile.TemporaryDirectory() as folder:
            made = [pathlib.Path(folder, stepzero_build.build_wheel(folder)).read_bytes() for _ in range(2)]
            self.assertEqual(*made)  # the same bytes each time
            with zipfile.ZipFile(io.BytesIO(made[0])) as wheel:
                wheel.extractall(folder)
                record = [n for n in wheel.namelist() if n.endswith("RECORD")][0]
                self.assertEqual({line.split(",")[0] for line in wheel.read(record).decode().split()}, set(wheel.namelist()))
            clean = {k: v for k, v in os.environ.items() if not k.startswith("STEPZERO_") and k != "PYTHONPATH"}
            done = subprocess.run([sys.executable, "-c", "import stepzero; print(stepzero.__file__, stepzero.load('gpt2').predict(seq_len=8).loss.predicted)"],
                                  cwd=folder, env=clean, capture_output=True, text=True)
            self.assertTrue(done.stdout.startswith(folder), done.stderr)

    def test_the_library_exports_its_functions_alone(self):
        symbols = subprocess.run(["nm", "-D", "--defined-only", os.environ["STEPZERO_LIBRARY"]], capture_output=True, text=True).stdout
        names = {line.split()[-1] for line in symbols.splitlines() if line.split()[1] in "TW" and not line.split()[-1].startswith("_")}
        header = (ROOT / "stepzero" / "capi" / "c.h").read_text()
        declared = {word.split("(")[0].split()[-1].lstrip("*") for word in header.split("SZ_API ")[1:] if "(" in word and not word.startswith("__")}
        self.assertEqual(names, {n for n in declared if n.startswith("sz_")})


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]], verbosity=1)
