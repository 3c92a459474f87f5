#!/usr/bin/env python3
"""The pytest plugin in a pytest of its own, and the callbacks under trainers that call them as the real ones do (fakes: the real ones are not in Debian).

    python3 tests/python/torch_plugins_test.py [BUILD]

Needs torch and pytest."""
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from types import SimpleNamespace

from setting import ROOT, stepzero  # first: it says where the package and the library lie

import torch
import torch_models as tm

import stepzero.torch as szt
from stepzero.integrations import lightning, transformers

torch.set_num_threads(1)
logging.getLogger("stepzero").setLevel(logging.CRITICAL)

SUITE = """
import math, sys
sys.path.insert(0, {tests!r})
import torch, torch_models as tm, stepzero.torch as szt

def test_right(stepzero_check):
    assert stepzero_check(szt.init_(tm.gpt2(), seed=1), expect="scheme:gpt2").findings == []

def test_wrong(stepzero_check):
    module = szt.init_(tm.gpt2(), seed=1)
    with torch.no_grad():
        module.transformer.h[0].mlp.c_proj.weight.mul_(math.sqrt(6))
    stepzero_check(module, expect="scheme:gpt2")

def test_laws(stepzero_check):
    stepzero_check(szt.init_(tm.gpt2(), seed={seed}, scheme="{scheme}"), golden=True)
"""


class Plugin(unittest.TestCase):
    def run_suite(self, folder, *words, seed=1, scheme="hf"):
        (folder / "test_models.py").write_text(SUITE.format(tests=str(ROOT / "tests/python"), seed=seed, scheme=scheme))
        done = subprocess.run([sys.executable, "-m", "pytest", "-p", "stepzero.pytest_plugin", "-p", "no:cacheprovider", "-q", "--tb=short", *words, "test_models.py"],
                              cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT / "python")}, capture_output=True, text=True)
        return done.stdout + done.stderr

    def test_in_a_suite(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            said = self.run_suite(folder)
            self.assertIn("2 failed, 1 passed", said)
            self.assertIn("skipped-depth-scaling", said)
            self.assertIn("pytest --stepzero-update writes it", said)
            self.assertIn("1 failed, 2 passed", self.run_suite(folder, "--stepzero-update"))
            self.assertTrue((folder / "stepzero_laws" / "test_laws.json").exists())
            self.assertIn("1 failed, 2 passed", self.run_suite(folder, seed=2))  # other numbers of the same laws
            said = self.run_suite(folder, scheme="xavier-normal")
            self.assertIn("2 failed", said)
            self.assertIn("follow another law", said)


class Readme(unittest.TestCase):
    def test_shows_what_the_example_prints(self):
        done = subprocess.run([sys.executable, ROOT / "examples/python/check_init.py"], capture_output=True, text=True, check=True)
        self.assertIn("```text\n" + done.stdout + "```", (ROOT / "README.md").read_text())


class Callbacks(unittest.TestCase):
    def train(self, module, callback, steps=2):
        """As transformers.Trainer: the order of events, and what it passes."""
        state = SimpleNamespace(log_history=[], global_step=0, is_world_process_zero=True)
        callback.on_train_begin(SimpleNamespace(), state, SimpleNamespace(), model=module, train_dataloader=None, optimizer=None)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        for _ in range(steps):
            ids = torch.randint(0, 211, (2, 9))
            module(ids[:, :-1], ids[:, 1:]).backward()
            optimizer.step()
            optimizer.zero_grad()
            state.global_step += 1
            callback.on_step_end(SimpleNamespace(), state, SimpleNamespace(), model=module)
        return state.log_history

    def test_of_transformers(self):
        callback = transformers.StepzeroCallback(expect="scheme:hf")
        told = self.train(szt.init_(tm.gpt2(), seed=1), callback)
        self.assertEqual(told[0]["stepzero/errors"], 0)
        self.assertGreater(told[1]["stepzero/within_5_spreads"], 0.9)
        self.assertEqual(len(told), 2)  # nothing after the first step
        self.assertGreater(len(callback.first.comparison.rows), 300)

    def test_training_does_not_begin_with_errors(self):
        module = szt.init_(tm.llama(), seed=1)
        module.model.rotary_emb.inv_freq.zero_()
        with self.assertRaisesRegex(AssertionError, "lost-buffer"):
            self.train(module, transformers.StepzeroCallback())
        self.assertEqual(self.train(module, transformers.StepzeroCallback(fail_on=None, record=False))[0]["stepzero/errors"], 1)

    def test_of_lightning(self):
        texts, numbers, tables = [], [], []
        loggers = [SimpleNamespace(log_metrics=lambda values, step: numbers.append(values), experiment=SimpleNamespace(add_text=lambda name, text: texts.append((name, text)))),
                   SimpleNamespace(log_metrics=lambda values, step: numbers.append(values), log_table=lambda key, columns, data: tables.append((key, columns, data)))]
        trainer = SimpleNamespace(loggers=loggers, global_step=0, is_global_zero=True)
        outside = torch.nn.Module()
        outside.net = szt.init_(tm.gpt2(), seed=1)
        callback = lightning.StepzeroCallback(model="net", expect="scheme:gpt2")
        callback.on_fit_start(trainer, outside)
        for _ in range(2):
            ids = torch.randint(0, 211, (2, 9))
            outside.net(ids[:, :-1], ids[:, 1:]).backward()
            callback.on_train_batch_end(trainer, outside, None, None, 0)
        self.assertEqual([name for name, _ in texts], ["stepzero/findings", "stepzero/first_step"])
        self.assertEqual([key for key, _, _ in tables], ["stepzero/findings", "stepzero/first_step"])
        self.assertEqual(len(numbers), 4)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
