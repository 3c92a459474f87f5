#!/usr/bin/env python3
"""The Python package: the same numbers as the program's, errors, interrupts, weights in place.

    python3 tests/python/package_test.py BUILD [--all]

BUILD holds the program and the library behind C. Standard library only; what needs torch is in torch_*_test.py. --all: every call interrupted 20 times."""
import ctypes
import json
import math
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

from setting import ALL, BUILD, ROOT, stepzero

from stepzero import _lib, arch, errors

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

    def test_configurations_as_data(self):
        config = {"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 48, "vocab_size": 61}
        model = stepzero.load(json.dumps(config))
        self.assertEqual(model.graph()["nodes"][-1]["op"], "cross_entropy")
        self.assertEqual(stepzero.load(json.dumps(model.graph())).predict(seq_len=8).loss, model.predict(seq_len=8).loss)
        with self.assertRaisesRegex(stepzero.StepzeroError, "hidden_sizes|unknown model_type"):
            stepzero.load(json.dumps(dict(config, model_type="lama")))

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


class Verbs(unittest.TestCase):
    """The calls give what the program gives; the classes name it."""

    def model(self, **more):
        return stepzero.load("gpt2", set=TINY, **more)

    def test_step(self):
        step = self.model().step(rate=1e-3, seq_len=8, search=False)
        theirs = json.loads(program("step", "gpt2", *tiny_words(), "--seq-len", "8", "--rate", "1e-3", "--no-search", "--json"))
        self.assertEqual(step.raw["streams"], theirs["streams"])
        self.assertGreater(step.streams["stream.2"].relative.predicted, 0)
        self.assertLess(step.after.predicted, step.before.predicted)
        self.assertIn("<svg", step._repr_html_())
        self.assertIn("stream", repr(step))

    def test_coord(self):
        check = self.model().coord(widths=[24, 48], seq_len=8, rate=1e-3, seeds=2, steps=1)
        self.assertEqual(check.values, [24, 48])
        self.assertEqual(check.passed, not check.failed())
        self.assertEqual(len(check.rows[0].values), 2)
        self.assertIn("<html", check.html)

    def test_transfer(self):
        carried = self.model().transfer(target_set={"width": 96, "heads": 8}, rate=1e-2)
        self.assertIn("parameter_groups", carried.torch)
        self.assertEqual(json.loads(carried.scheme)["schema"], "stepzero.transfer/1")
        again = self.model().transfer(stepzero.load("gpt2", set={**TINY, "width": 96, "heads": 8}), rate=1e-2)
        self.assertEqual(carried.raw["tensors"] if "tensors" in carried.raw else carried.torch, again.raw["tensors"] if "tensors" in again.raw else again.torch)

    def test_solve(self):
        solved = self.model(scheme="xavier-normal").solve(seq_len=8)
        self.assertEqual(solved.raw["schema"], "stepzero.solve/1")
        self.assertTrue(solved.targets and solved.scales)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "scheme.json"
            path.write_text(solved.scheme)
            self.model(scheme=str(path)).predict(seq_len=8)

    def test_sweep(self):
        swept = self.model().sweep("layers=1..3:3", seq_len=8)
        self.assertEqual([row["layers"] for row in swept.to_rows()], [1, 2, 3])
        self.assertIn("loss", swept.to_rows()[0])
        self.assertTrue(swept.csv)

    def test_diff(self):
        with tempfile.TemporaryDirectory() as folder:
            for seed in (0, 1):
                self.model().init(f"{folder}/{seed}.safetensors", seed=seed)
            self.assertTrue(stepzero.diff(f"{folder}/0.safetensors", self.model(), seed=0).same)
            other = stepzero.diff(f"{folder}/0.safetensors", f"{folder}/1.safetensors")
            self.assertFalse(other.same)
            self.assertIn("other numbers of the same law", repr(other))


class Builder(unittest.TestCase):
    """Models built in a notebook are those of files."""

    def test_a_file_word_for_word(self):
        text = (ROOT / "examples/architectures/gate.py").read_text()
        names = {}
        exec(text + "\nmade = model()\n", names)
        exec("from stepzero.arch import *", names)
        theirs = stepzero.load(ROOT / "examples/architectures/gate.py").graph()
        self.assertEqual([n["name"] for n in arch.graph().json()["nodes"]], [n["name"] for n in theirs["nodes"]])
        self.assertEqual(names["model"]().graph()["nodes"], theirs["nodes"])

    def test_a_cell_run_again_begins_anew(self):
        names = {}
        cell = 'from stepzero.arch import *\narch("a", width=32)\nx = tokens(97, width, "embed")\nstream(x)\nloss(head(rms_norm(x, "norm"), 97, "head"))'
        for _ in range(2):
            exec(cell, names)
        self.assertEqual(len(arch.graph().nodes), 4)
        self.assertIn("32 channels", repr(names["x"]))
        self.assertIn("<table>", arch.graph()._repr_html_())
        with self.assertRaisesRegex(arch.Error, "two tensors are called"):
            exec('tokens(97, width, "embed2"); tokens(97, width, "embed2"); linear(x, 4, "one"); linear(x, 4, "one")', names)

    def test_editors_know_the_words(self):
        subprocess.run([sys.executable, ROOT / "tests/python/arch_stub.py"], check=True)


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

    def test_any_box(self):
        """Boxes of tensors, several in one call: what shards need. Against the whole, row by row."""
        for scheme in ("hf", "orthogonal"):
            model = stepzero.load("gpt2", set=TINY, scheme=scheme)
            shape = {t["name"]: t["shape"] for t in model.tensors()}
            boxes = [("transformer.wte.weight", [5, 7], [3, 40]), ("transformer.h.1.attn.c_attn.weight", [0, 48], [48, 48]), ("transformer.h.0.mlp.c_proj.weight", [10, 0], [4, 48]),
                     ("transformer.ln_f.weight", [3], [9])]
            memory = [(ctypes.c_float * math.prod(size))() for _, _, size in boxes]
            pieces = [{"tensor": name, "offset": offset, "size": size} for name, offset, size in boxes]
            _lib.call("fill", model._request({"seed": 4, "pieces": pieces}), data=[ctypes.addressof(m) for m in memory])
            for (name, offset, size), got in zip(boxes, memory):
                whole = (ctypes.c_float * math.prod(shape[name]))()
                model.fill(name, ctypes.addressof(whole), len(whole), seed=4)
                cols = shape[name][-1]
                rows = range(offset[0], offset[0] + size[0]) if len(size) == 2 else [0]
                wanted = [whole[r * cols + c] for r in rows for c in range(offset[-1], offset[-1] + size[-1])]
                self.assertEqual(list(got), wanted, f"{scheme} {name}")
            with self.assertRaisesRegex(stepzero.StepzeroError, "does not lie in it"):
                piece = {"tensor": "transformer.wte.weight", "offset": [96, 0], "size": [2, 48]}
                _lib.call("fill", model._request({"pieces": [piece]}), data=[ctypes.addressof(memory[0])])

    def test_audit_where_tensors_lie(self):
        model = stepzero.load("gpt2", set=TINY)
        config = {"model_type": "gpt2", "n_layer": 2, "n_embd": 48, "n_head": 4, "vocab_size": 97, "n_positions": 16}
        tensors = model.tensors()
        memory = [(ctypes.c_float * math.prod(t["shape"]))() for t in tensors]
        for t, m in zip(tensors, memory):
            model.fill(t["name"], ctypes.addressof(m), len(m), seed=3)
        request = {"config": json.dumps(config), "scheme": "hf", "consequences": False, "tensors": [{"name": t["name"], "shape": t["shape"], "dtype": "F32"} for t in tensors]}

        def findings():
            return {f["id"] for f in _lib.call("audit_memory", request, data=[ctypes.addressof(m) for m in memory]).json()["findings"]}

        self.assertEqual(findings(), set())
        spoiled = memory[[t["name"] for t in tensors].index("transformer.h.0.mlp.c_proj.weight")]
        for i in range(len(spoiled)):
            spoiled[i] *= 2
        self.assertEqual(findings(), {"skipped-depth-scaling"})

    def test_roles_without_a_model(self):
        request = {"scheme": "xavier-normal", "tensors": [{"name": "a.weight", "shape": [8, 24], "role": "ffn_out"}, {"name": "layers.0.q_proj.weight", "shape": [8, 8]}]}
        self.assertEqual([t["role"] for t in _lib.call("tensors", request).json()["tensors"]], ["ffn_out", "query"])
        request["tensors"][0]["role"] = "nothing"
        with self.assertRaisesRegex(stepzero.StepzeroError, "nothing is no role"):
            _lib.call("tensors", request)

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


MODEL = "gpt2-xl" if ALL else "gpt2-medium"  # whose weights are audited
LONG = {
    "predict": "stepzero.load('llama-3-8b').predict(seq_len=512, whole=True)",
    "measure": "stepzero.load('gpt2').measure(seeds=1000)",
    "train": "stepzero.load('gpt2', set={'layers': 2}).train(steps=100000, seq_len=64)",
    "init": "stepzero.load('llama-2-7b').init(FOLDER, dtype='bf16')",
    "audit": "stepzero.audit(WEIGHTS, config=MODEL)",
}


class Interrupts(unittest.TestCase):
    def test_end_every_call_and_leave_nothing(self):
        with tempfile.TemporaryDirectory() as weights:
            stepzero.load(MODEL).init(weights + "/w.safetensors", dtype="bf16")
            for name, call in LONG.items():
                took = sorted(self.interrupt(name, call, weights + "/w.safetensors", (0.3 if name != "audit" else 0.05) + 0.05 * i) for i in range(20 if ALL else 1))
                if ALL:  # a timing: other work on the machine shows in it
                    print(f"{name}: {sum(t < 0.05 for t in took)} of {len(took)} within 50 ms, median {1e3 * took[len(took) // 2]:.0f} ms, worst {1e3 * took[-1]:.0f} ms")
                    self.assertLess(took[-1], 0.05, name)

    def interrupt(self, name, call, weights, after):
        """Seconds from the signal to the exception, as the caller sees it."""
        with tempfile.TemporaryDirectory() as folder:
            code = ("import os, pathlib, signal, stepzero, time\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
                    f"FOLDER, WEIGHTS, MODEL = {folder + '/out'!r}, {weights!r}, {MODEL!r}\nstepzero.load('gpt2')\nprint('on', flush=True)\ntry:\n    {call}\n"
                    "except KeyboardInterrupt:\n    print('stopped', time.monotonic(), *(p for p in pathlib.Path(FOLDER).rglob('*') if p.is_file()), flush=True)\n")
            job = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
            self.assertEqual(job.stdout.readline(), "on\n")
            time.sleep(after)
            said = time.monotonic()
            job.send_signal(signal.SIGINT)
            line = job.stdout.readline().split()
            job.stdout.close()
            self.assertEqual([line[0], line[2:]], ["stopped", []], name)  # no file is left, also at that moment
            self.assertEqual(job.wait(30), 0, name)
            self.assertEqual([p for p in pathlib.Path(folder).rglob("*") if p.is_file()], [], name)
            return float(line[1]) - said

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


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
