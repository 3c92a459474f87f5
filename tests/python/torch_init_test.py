#!/usr/bin/env python3
"""init_ on live modules: the bits that `stepzero init` writes, whatever wraps, packs or shards them.

    python3 tests/python/torch_init_test.py [BUILD] [--all]

Needs torch. --all: every family of tests/models under every scheme and in three types."""
import itertools
import json
import pathlib
import sys
import tempfile
import time
import unittest
import unittest.mock
import warnings

from setting import ALL, stepzero  # first: it says where the package and the library lie

import torch
import torch_models as tm
from torch_support import DTYPES, ROOT, Replicate, Shard, StridedShard, bits, distributed, file_bits, flat, shard_of

import stepzero.torch as szt
from stepzero.torch import memory

warnings.simplefilter("ignore")
torch.set_num_threads(1)


def written(config, scheme="hf", seed=7, dtype="f32"):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "w.safetensors"
        stepzero.Model(json.dumps(config), {}, scheme).init(path, seed=seed, dtype=dtype)
        return file_bits(path)


class Bits(unittest.TestCase):
    def compare(self, module, theirs, words=""):
        mine = {name: bits(p) for name, p in module.named_parameters()}
        self.assertEqual([n for n in mine if mine[n] != theirs[n]], [], words)
        self.assertEqual(set(mine), set(theirs), words)

    def test_of_real_modules(self):
        for make in (tm.gpt2, tm.llama, tm.mixtral, tm.vit):
            for name, dtype in DTYPES.items():
                module = szt.init_(make().to(dtype), seed=7)
                self.compare(module, written(module.config, dtype=name), name)

    @unittest.mock.patch("warnings.warn")
    def test_every_family_scheme_and_type(self, _):
        """Those that exist: 0 bits differ."""
        families = json.loads((ROOT / "tests/models/transformers_4.57.json").read_text())
        schemes = [s["name"] for s in stepzero.schemes()]
        pairs = list(itertools.product(families, schemes))
        tensors = numbers = modules = 0
        for i, (family, scheme) in enumerate(pairs):
            if not ALL and i % 29:
                continue
            config = families[family]["config"]
            model = stepzero.Model(json.dumps(config), {}, scheme)
            try:
                shapes = model.tensors()
            except stepzero.StepzeroError:
                continue  # the scheme is not for this family
            for name, dtype in DTYPES.items() if ALL else [list(DTYPES.items())[i % 3]]:
                module = tm.holding(shapes, dtype)
                szt.init_(module, scheme=scheme, seed=i, config=config)
                self.compare(module, written(config, scheme, i, name), f"{family} {scheme} {name}")
                modules += 1
                tensors += len(shapes)
                numbers += sum(p.numel() for p in module.parameters())
        print(f"{modules} modules of {len(families)} families and {len(schemes)} schemes, {tensors} tensors, {numbers} numbers: 0 bits differ")
        self.assertGreater(modules, 3000 if ALL else 30)

    def test_of_packed_experts(self):
        module = szt.init_(tm.mixtral(packed=True), seed=7)
        theirs = written(module.config)
        ffn = module.config.intermediate_size
        for layer in range(3):
            experts = module.model.layers[layer].mlp.experts
            for e in range(4):
                base = f"model.layers.{layer}.block_sparse_moe.experts.{e}."
                self.assertEqual(bits(experts.gate_up_proj[e, :ffn]), theirs[base + "w1.weight"])
                self.assertEqual(bits(experts.gate_up_proj[e, ffn:]), theirs[base + "w3.weight"])
                self.assertEqual(bits(experts.down_proj[e]), theirs[base + "w2.weight"])
            self.assertEqual(bits(module.model.layers[layer].mlp.gate.weight), theirs[f"model.layers.{layer}.block_sparse_moe.gate.weight"])

    def test_of_wrapped_names(self):
        theirs = written(tm.GPT2)
        inside = tm.gpt2()
        wrapped = tm.named(_orig_mod=tm.named(module=inside))
        szt.init_(wrapped, seed=7)
        self.compare(inside, theirs)
        headless = szt.init_(tm.gpt2().transformer, seed=7)
        self.assertEqual({"transformer." + n: bits(p) for n, p in headless.named_parameters()}, theirs)
        own = tm.holding([{"name": "embed", "shape": [211, 64]}])
        szt.init_(own, config=tm.GPT2, names={"embed": "transformer.wte.weight"}, seed=7)
        self.assertEqual(bits(own.embed), theirs["transformer.wte.weight"])

    def test_by_pieces_as_to_another_device(self):
        kept = memory.on_host, memory.PIECE
        try:
            memory.on_host, memory.PIECE = (lambda t: False), 1000  # every tensor is as if it were elsewhere
            for make in (tm.gpt2, lambda: tm.mixtral(packed=True)):
                module = szt.init_(make(), seed=7)
                theirs = szt.init_(make(), seed=7)
                memory.on_host = kept[0]
                szt.init_(theirs, seed=7)
                memory.on_host = lambda t: False
                self.assertEqual([n for (n, a), b in zip(module.named_parameters(), theirs.parameters()) if bits(a) != bits(b)], [])
        finally:
            memory.on_host, memory.PIECE = kept

    def test_of_what_does_not_lie_in_one_row(self):
        module = tm.gpt2()
        w = module.transformer.h[0].mlp.c_fc
        w.weight = torch.nn.Parameter(torch.empty(256, 64).t())
        szt.init_(module, seed=7)
        self.assertEqual(bits(w.weight), written(tm.GPT2)["transformer.h.0.mlp.c_fc.weight"])
        double = szt.init_(tm.gpt2().double(), seed=7)
        self.assertEqual(bits(double.transformer.wte.weight.float()), written(tm.GPT2)["transformer.wte.weight"])

    def test_by_roles(self):
        """Without a configuration: patterns, and what names say. A gain is 1, a bias 0, matrices as the scheme has them."""
        shapes = {"tok.weight": (50, 16), "blocks.0.first.weight": (64, 16), "blocks.0.second.weight": (16, 64), "blocks.0.second.bias": (16,), "norm.weight": (16,)}
        module = tm.holding([{"name": n, "shape": s} for n, s in shapes.items()])
        szt.init_(module, scheme="xavier-normal", roles={"tok.*": "token_embedding", "*.first.weight": "ffn_in", "*.second.weight": "ffn_out"})
        p = dict(module.named_parameters())
        self.assertAlmostEqual(float(p["blocks.0.first.weight"].std()), (2 / 80) ** 0.5, delta=0.02)
        self.assertEqual(float(p["norm.weight"].min()), 1)
        self.assertEqual(float(p["blocks.0.second.bias"].abs().max()), 0)
        with self.assertRaisesRegex(stepzero.StepzeroError, "roles="):
            szt.init_(tm.holding([{"name": "mystery.weight", "shape": (4, 4)}]))
        with self.assertRaisesRegex(stepzero.StepzeroError, "forward pass"):
            szt.init_(module, scheme="deepnet", roles={"tok.*": "token_embedding", "*.first.weight": "ffn_in", "*.second.weight": "ffn_out"})

    @unittest.skipUnless(ALL, "--all: a timing")
    def test_is_faster_than_torch(self):
        """GPT-2's table on one thread: processor time, the best of seven."""
        module = tm.holding([{"name": "transformer.wte.weight", "shape": [50257, 768]}])
        table = module.transformer.wte.weight

        def best(draw):
            draw()
            times = []
            for _ in range(7):
                begin = time.process_time()
                draw()
                times.append(time.process_time() - begin)
            return min(times)

        own, theirs = best(lambda: szt.init_(module, config="gpt2", threads=1)), best(lambda: torch.nn.init.normal_(table, std=0.02))
        print(f"a table of 50257 x 768: init_ {1e3 * own:.1f} ms, torch.nn.init.normal_ {1e3 * theirs:.1f} ms: {theirs / own:.1f} times")
        self.assertGreater(theirs / own, 4)

    def test_autograd_is_told(self):
        module = tm.gpt2()
        ids = torch.zeros(1, 4, dtype=torch.long)
        loss = module(ids, ids)
        szt.init_(module)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            loss.backward()


class Refusals(unittest.TestCase):
    def test_say_what_to_do(self):
        with self.assertRaisesRegex(stepzero.StepzeroError, "meta device(.|\n)*to_empty"):
            szt.init_(tm.gpt2().to("meta"))
        with self.assertRaisesRegex(stepzero.StepzeroError, r"\[211, 64\](.|\n)*of this configuration"):
            szt.init_(tm.gpt2(), config=dict(tm.GPT2, n_embd=128))
        untied = tm.gpt2()
        untied.lm_head.weight = torch.nn.Parameter(torch.zeros(211, 64))
        with self.assertRaisesRegex(stepzero.StepzeroError, "tie_weights"):
            szt.init_(untied)
        with self.assertRaisesRegex(stepzero.StepzeroError, "did you mean"):
            szt.init_(tm.gpt2(), scheme="xavier-norma")
        with self.assertRaisesRegex(stepzero.StepzeroError, "partial sum"):
            class Partial:
                pass

            szt.init_(distributed(tm.gpt2(), lambda shape: [Partial()], [2], [0]))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            module = szt.init_(tm.gpt2(), scheme="deepnet")  # which has no norm behind the last block
        self.assertIn("also changes the forward pass", str(told[0].message))
        self.assertEqual(float(module.transformer.ln_f.weight.min()), 1)


MESHES = [[1], [2], [3], [4], [2, 2], [2, 3]]


class Shards(unittest.TestCase):
    """Local parts of every place of a mesh, against the same parts of the whole."""

    def places(self, mesh):
        return itertools.product(*(range(n) for n in mesh))

    def check(self, make, mesh, placements):
        theirs = dict(szt.init_(make(), seed=7).named_parameters())
        for coordinate in self.places(mesh):
            module = szt.init_(distributed(make(), placements, mesh, list(coordinate)), seed=7)
            for path, child in module.named_modules():
                for name, p in child._parameters.items():
                    whole = theirs.get(path + "." + name)
                    if whole is None:
                        continue  # tied, and named elsewhere
                    wanted = shard_of(whole.detach(), p.placements, mesh, coordinate)
                    self.assertEqual(bits(p._local_tensor), bits(wanted), f"{mesh} {coordinate} {path}.{name}")

    def test_of_meshes(self):
        def by(*dims):  # a vector has no second dimension
            return lambda shape: [Replicate() if d is None else Shard(min(d, len(shape) - 1)) for d in dims]

        for mesh in MESHES:
            for dims in itertools.product((0, 1, None), repeat=len(mesh)):
                if not ALL and len(mesh) > 1 and dims not in ((0, 1), (0, 0), (None, 0), (1, None)):
                    continue
                self.check(tm.gpt2, mesh, by(*dims))
        self.check(lambda: tm.mixtral(packed=True), [3], by(0))
        self.check(lambda: tm.mixtral(packed=True), [2, 2], by(0, 1))
        self.check(tm.gpt2, [2, 3], lambda shape: [StridedShard(0, 3), Shard(0)])  # FSDP over tensor parallelism

    def test_of_flat_parameters(self):
        for modern in (False, True):
            for make in (tm.llama, lambda: tm.mixtral(packed=True)):
                whole = torch.cat([p.detach().flatten() for p in szt.init_(make(), seed=7).parameters()])
                for ranks in (1, 2, 3, 4):
                    got = []
                    for rank in range(ranks):
                        wrapper, local = flat(make(), ranks, rank, modern)
                        szt.init_(wrapper, seed=7)
                        got.append(local)
                    self.assertEqual(bits(torch.cat(got)[:len(whole)]), bits(whole), f"{ranks} ranks, modern={modern}")

    def test_of_real_processes(self):
        """Each of 2 and 3 processes fills its rows; no collective is called until the parts are gathered to compare."""
        for ranks in (2, 3):
            with tempfile.TemporaryDirectory() as folder:
                torch.multiprocessing.spawn(process, (ranks, folder), nprocs=ranks)


def process(rank, ranks, folder):
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    called = []
    originals = {name: getattr(dist, name) for name in ("all_reduce", "all_gather", "broadcast", "barrier", "all_gather_object", "scatter", "reduce")}
    for name in originals:
        setattr(dist, name, lambda *a, _name=name, **k: called.append(_name))
    module = szt.init_(distributed(tm.gpt2(), lambda shape: [Shard(0)], [ranks], [rank]), seed=7)
    for name, function in originals.items():
        setattr(dist, name, function)
    assert called == [], called
    wholes = dict(szt.init_(tm.gpt2(), seed=7).named_parameters())
    for name, p in module.named_parameters():
        everyone = [None] * ranks
        dist.all_gather_object(everyone, p._local_tensor)
        assert bits(torch.cat(everyone)) == bits(wholes[name]), name
    dist.destroy_process_group()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
