#!/usr/bin/env python3
"""record: the statistics of a step in torch against `measure` on the same weights and tokens, and against the prediction.

    python3 tests/python/torch_record_test.py [BUILD] [--all]

Needs torch. --all: wider models, more seeds, and what recording costs."""
import json
import pathlib
import sys
import tempfile
import time
import unittest

from setting import ALL, ROOT, stepzero  # first: it says where the package and the library lie

import torch
import torch.utils.checkpoint
import torch_models as tm

import stepzero.torch as szt

torch.set_num_threads(1)

MODELS = {"gpt2": tm.gpt2, "llama": tm.llama, "mixtral": tm.mixtral, "mixtral, packed": lambda **k: tm.mixtral(packed=True, **k), "vit": tm.vit, "t5": tm.t5, "bart": tm.bart}
ABSOLUTE = ("token_cosine", "gradient token_cosine", "entropy")  # their differences count as they are, those of means beside the rms


def batch_of(config, folder, seed=0, sequences=2, tokens=24):
    """Arguments of the module, and the same input for stepzero."""
    g = torch.Generator().manual_seed(seed)
    if config.model_type == "vit":
        pixels, labels = torch.randn(sequences, 3, config.image_size, config.image_size, generator=g), torch.randint(0, 11, (sequences,), generator=g)
        (folder / "pixels").write_bytes(pixels.numpy().tobytes())
        (folder / "labels").write_text(" ".join(map(str, labels.tolist())))
        return (pixels, labels), {"pixels": str(folder / "pixels"), "labels": str(folder / "labels")}
    ids = torch.randint(2, config.vocab_size, (sequences, tokens + 1), generator=g)
    (folder / "tokens").write_text("\n".join(" ".join(map(str, row.tolist())) for row in ids))
    told = {"tokens": str(folder / "tokens")}
    if config.model_type not in ("t5", "bart"):
        return (ids[:, :-1], ids[:, 1:]), told
    heard = torch.randint(2, config.vocab_size, (sequences, tokens), generator=g)
    (folder / "encoder").write_text("\n".join(" ".join(map(str, row.tolist())) for row in heard))
    return (heard, ids[:, :-1], ids[:, 1:]), {**told, "encoder_tokens": str(folder / "encoder")}


def recorded(module, arguments):
    with szt.record(module, labels=arguments[-1]) as rec:
        module(*arguments).backward()
    return rec


def by_place(signal):
    return {(r["where"], r["what"]): r["measured"] for r in signal.to_rows()}


class Record(unittest.TestCase):
    def test_is_what_measure_measures(self):
        for name, make in MODELS.items():
            module = szt.init_(make(), seed=3)
            with tempfile.TemporaryDirectory() as folder:
                arguments, told = batch_of(module.config, pathlib.Path(folder))
                mine = by_place(recorded(module, arguments).signal)
                theirs = by_place(stepzero.Model(json.dumps(module.config)).measure(seed=3, **told))
            theirs.pop(("final_logits_bias", "std"), None)  # a buffer of the module, not a parameter
            self.assertEqual(set(mine), set(theirs), name)
            worst = (0.0, "")
            for place, value in theirs.items():
                where, what = place
                scale = 1.0 if what in ABSOLUTE else theirs[where, "second_moment"] ** 0.5 if what == "mean" else abs(value)
                if what == "gradient_norm" and where.endswith(("key.bias", "c_attn.bias", "k_proj.bias")):
                    scale = max(scale, 1e-3)  # a bias of keys has no gradient: what is there is rounding
                worst = max(worst, (abs(mine[place] - value) / scale if scale else 0.0, f"{place}"))
            print(f"{name}: {len(theirs)} numbers, at most {worst[0]:.1e} apart, at {worst[1]}")
            self.assertLess(worst[0], 1e-6, name)

    def test_lies_beside_the_prediction(self):
        """Of all numbers of nodes, over models and seeds, 99 % within 5 of the spread of single draws."""
        near = many = 0
        wide = {"n_embd": 256, "hidden_size": 256, "vocab_size": 1009, "intermediate_size": 512} if ALL else {"n_embd": 128, "hidden_size": 128, "intermediate_size": 256}
        for name, make in MODELS.items():
            nodes = numbers = 0
            for seed in range(10 if ALL else 2):
                module = szt.init_(make(**{k: v for k, v in wide.items() if k in make().config and not (k == "vocab_size" and name == "vit")}), seed=seed)
                with tempfile.TemporaryDirectory() as folder:
                    arguments, _ = batch_of(module.config, pathlib.Path(folder), seed)
                    rows = [r for r in recorded(module, arguments).compare().rows if "." in r.where and not r.where.endswith(("weight", "bias", "proj", "token")) and r.z is not None]
                nodes += sum(abs(r.z) <= 5 for r in rows)
                numbers += len(rows)
            print(f"{name}: {100 * nodes / numbers:.2f} % of {numbers} numbers of nodes within 5 spreads")
            near, many = near + nodes, many + numbers
        print(f"all: {100 * near / many:.2f} % of {many}")
        self.assertGreater(near / many, 0.99)

    def test_finds_what_is_wrong(self):
        """A module whose attention forgets its scale: the numbers behind it are far off."""
        module = szt.init_(tm.llama(), seed=1)
        scale_of = module.model.layers[1].self_attn
        forward = scale_of.q_proj.forward
        scale_of.q_proj.forward = lambda x: 30 * forward(x)
        with tempfile.TemporaryDirectory() as folder:
            arguments, _ = batch_of(module.config, pathlib.Path(folder))
            rows = recorded(module, arguments).compare().rows
        self.assertIn("blocks.1.attn", rows[0].where)
        self.assertGreater(abs(rows[0].z), 20)

    def test_keeps_nothing_and_takes_the_first_step_alone(self):
        module = szt.init_(tm.gpt2(), seed=3)
        ids = torch.zeros(2, 9, dtype=torch.long)
        with szt.record(module) as rec:
            module(ids, ids).backward()
            first = rec.signal.raw
            module(ids + 5, ids).backward()
            self.assertEqual(rec.signal.raw["nodes"], first["nodes"])
        self.assertEqual([k for k, v in vars(rec).items() if isinstance(v, dict) and any(isinstance(t, torch.Tensor) for t in v.values())], [])
        self.assertFalse(any(m._forward_hooks or m._forward_pre_hooks for m in module.modules()))

    def test_with_checkpointed_blocks(self):
        plain, again = szt.init_(tm.gpt2(), seed=3), szt.init_(tm.gpt2(), seed=3)
        for block in again.transformer.h:
            block.forward = (lambda f: lambda x: torch.utils.checkpoint.checkpoint(f, x))(block.forward)
        with tempfile.TemporaryDirectory() as folder:
            arguments, _ = batch_of(plain.config, pathlib.Path(folder))
            a, b = (by_place(recorded(m, arguments).signal) for m in (plain, again))
        self.assertEqual(set(a), set(b))
        for place, value in a.items():
            self.assertAlmostEqual(value, b[place], delta=1e-5 * abs(value) + 1e-9, msg=str(place))

    def test_in_half_precision(self):
        module = szt.init_(tm.llama().bfloat16(), seed=1)
        with tempfile.TemporaryDirectory() as folder:
            arguments, _ = batch_of(module.config, pathlib.Path(folder))
            comparison = recorded(module, arguments).compare()
        self.assertGreater(comparison.within(5), 0.97)

    def test_says_what_it_cannot(self):
        with self.assertRaisesRegex(stepzero.StepzeroError, "compiled module"):
            szt.record(tm.named(_orig_mod=tm.gpt2()))
        with self.assertRaisesRegex(stepzero.StepzeroError, "no configuration"):
            szt.record(torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False)), config=None)
        hears = json.loads((ROOT / "tests/models/transformers_4.57.json").read_text())["whisper"]["config"]
        with self.assertRaisesRegex(stepzero.StepzeroError, "a model that hears"):
            szt.record(tm.holding(stepzero.Model(json.dumps(hears)).tensors()), config=hears)
        module = szt.init_(tm.gpt2())
        with szt.record(module) as rec:
            pass
        with self.assertRaisesRegex(stepzero.StepzeroError, "no forward pass"):
            rec.compare()

    def test_shows_itself(self):
        module = szt.init_(tm.gpt2(), seed=3)
        with tempfile.TemporaryDirectory() as folder:
            arguments, _ = batch_of(module.config, pathlib.Path(folder))
            comparison = recorded(module, arguments).compare()
        self.assertIn("within 5 spreads", repr(comparison))
        self.assertIn("<svg", comparison._repr_html_())
        self.assertNotIn("http", comparison._repr_html_())
        self.assertIsNotNone(comparison.joined.nodes["stream.1"].forward.second_moment.z)

    @unittest.skipUnless(ALL, "--all: a timing")
    def test_costs_little(self):
        """One step with AdamW of a GPT-2 of 12 layers on one thread, with and without: processor time, the best of five."""
        module = szt.init_(tm.gpt2(n_layer=12, n_embd=768, n_head=12, n_positions=256, vocab_size=50257), seed=3)
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4)
        ids = torch.randint(0, 50257, (2, 257), generator=torch.Generator().manual_seed(0))

        def step():
            begin = time.process_time()
            optimizer.zero_grad()
            module(ids[:, :-1], ids[:, 1:]).backward()
            optimizer.step()
            return time.process_time() - begin

        def recorded_step():
            begin = time.process_time()
            with szt.record(module):
                step()
            return time.process_time() - begin

        step()
        plain = min(step() for _ in range(5))
        both = min(recorded_step() for _ in range(5))
        print(f"a step {plain:.2f} s, recorded {both:.2f} s: {100 * (both / plain - 1):.0f} % more")
        self.assertLess(both / plain, 1.3)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
