#!/usr/bin/env python3
"""audit and check on live modules: mistakes that were planted are named, and nothing else is told.

    python3 tests/python/torch_audit_test.py [BUILD] [--all]

Needs torch. --all: every family with 20 seeds, and a module of 1.5 thousand million parameters (3 GB)."""
import itertools
import json
import math
import re
import sys
import tempfile
import unittest
import warnings

from setting import ALL, stepzero  # first: it says where the package and the library lie

import torch
import torch_models as tm
from torch_support import ROOT, Replicate, Shard, distributed, flat, shard_of

import stepzero.torch as szt
from stepzero.torch import replicas

warnings.simplefilter("ignore")
torch.set_num_threads(1)


def ids(found):
    return {f.id for f in found.findings}


def scale(module, pattern, factor):
    """Multiplies parameters by a number, or by a function of the layer."""
    with torch.no_grad():
        for name, p in module.named_parameters():
            if re.search(pattern, name):
                layer = int((re.findall(r"\.(\d+)\.", name) or [0])[0])
                p.mul_(factor(layer) if callable(factor) else factor)


def redraw(module, pattern, draw):
    with torch.no_grad():
        for name, p in module.named_parameters():
            if re.search(pattern, name):
                draw(p)


def roberta():
    config = dict(model_type="roberta", num_hidden_layers=2, hidden_size=64, num_attention_heads=4, intermediate_size=128, vocab_size=97, max_position_embeddings=50,
                  type_vocab_size=1, pad_token_id=1)
    module = tm.holding(stepzero.Model(json.dumps(config)).tensors())
    module.config = config
    return module


def depth(layer):
    return 1 / math.sqrt(2 * (layer + 1))


def bound_as_std(p):
    p.normal_(std=math.sqrt(6 / sum(p.shape)))


def std_as_bound(p):
    bound = math.sqrt(2 / sum(p.shape))
    p.uniform_(-bound, bound)


MATRIX = r"proj\.weight$|lm_head"

# What was done in public code: its finding, a module, the scheme it is drawn by and held against, what is done to it.
KNOWN = [
    ("zero-tensor", tm.llama, "megatron", lambda m: scale(m, r"1\.self_attn\.v_proj", 0)),
    ("skipped-depth-scaling", tm.gpt2, "gpt2", lambda m: scale(m, "c_proj.weight", math.sqrt(6))),
    ("scaled-twice", tm.gpt2, "gpt2", lambda m: scale(m, "c_proj.weight", 1 / math.sqrt(6))),
    ("depth-scaling-on-up-projection", tm.llama, "llama-depth", lambda m: scale(m, "up_proj", depth)),
    ("truncation-never-truncates", tm.llama, "bert", lambda m: redraw(m, MATRIX + "|embed", lambda p: p.normal_(std=0.02))),
    ("fused-qkv-fan-out", lambda: tm.llama(num_key_value_heads=4), "xavier-uniform", lambda m: scale(m, r"[qkv]_proj", math.sqrt(0.5))),
    ("bound-used-as-std", tm.llama, "xavier-uniform", lambda m: redraw(m, MATRIX, bound_as_std)),
    ("std-used-as-bound", tm.llama, "xavier-normal", lambda m: redraw(m, MATRIX, std_as_bound)),
    ("fan-out-for-fan-in", tm.llama, "he", lambda m: scale(m, r"up_proj|gate_proj", math.sqrt(64 / 160))),
    ("variance-used-as-std", tm.llama, "megatron", lambda m: scale(m, r"q_proj", 0.02)),
    ("padding-row-not-zero", roberta, "hf", lambda m: m.roberta.embeddings.word_embeddings.weight.data[1].normal_(std=0.02)),
]


def to_empty(m):
    """As memory may come: old numbers, huge ones, NaN."""
    with torch.no_grad():
        for i, p in enumerate(m.parameters()):
            p.fill_(0) if i % 3 else p.view(-1)[::7].fill_(1e30)
        m.model.norm.weight[3] = float("nan")


def same_shards():
    """What ranks that share one state of the generator hold: FSDP with offloading did this."""
    out = []
    for rank in range(2):
        torch.manual_seed(0)
        m = distributed(tm.gpt2(), lambda shape: [Shard(0)], [2], [rank])
        for p in m.parameters():
            p._local_tensor.normal_(std=0.02)
        out.append(m)
    return out


def other_replicas():
    return [szt.init_(distributed(tm.gpt2(), lambda shape: [Replicate(), Shard(0)], [2, 2], [copy_, 0]), seed=copy_) for copy_ in range(2)]


def parts_of(make, whole, placements, mesh):
    """What each place of a mesh holds of a module's numbers."""
    numbers = {name: p.detach() for name, p in whole.named_parameters()}
    for coordinate in itertools.product(*(range(n) for n in mesh)):
        m = distributed(make(), placements, mesh, list(coordinate))
        for name, p in m.named_parameters():
            p._local_tensor.copy_(shard_of(numbers[name], p.placements, mesh, coordinate))
        yield m


def by_rows(make, whole):
    return parts_of(make, whole, lambda shape: [Shard(0)], [2])


def by_columns(make, whole):
    return parts_of(make, whole, lambda shape: [Shard(len(shape) - 1)], [2])


def by_both(make, whole):
    return parts_of(make, whole, lambda shape: [Shard(0), Shard(1) if len(shape) > 1 else Replicate()], [2, 2])


def as_flat(make, whole):
    """FSDP's row of all numbers, cut wherever it falls."""
    row = torch.cat([p.detach().flatten() for p in whole.parameters()])
    for rank in range(3):
        m, local = flat(make(), 3, rank, True)
        mine = row[rank * len(local):(rank + 1) * len(local)]
        local[:len(mine)] = mine
        yield m


class Mistakes(unittest.TestCase):
    """Fifteen, in live modules: each is named, alone, and its correct twin has no finding."""

    def test_the_eleven_of_audit(self):
        for name, make, scheme, spoil in KNOWN:
            module = szt.init_(make(), scheme=scheme, seed=3)
            self.assertEqual(ids(szt.check(module, "scheme:" + scheme)), set(), name)
            spoil(module)
            with self.assertRaises(AssertionError, msg=name) as caught:
                szt.check(module, "scheme:" + scheme)
            self.assertEqual(ids(caught.exception.audit), {name}, str(caught.exception))
            self.assertIn(name, str(caught.exception))

    def test_the_eleven_in_shards(self):
        """Each place of a mesh says what it can of its part, without the others: the mistake is named where it lies, and nothing else anywhere.

        A third or a quarter of so small a matrix may leave other names possible too."""
        for name, make, scheme, spoil in KNOWN:
            for spoiled in (False, True):
                whole = szt.init_(make(), scheme=scheme, seed=3)
                if spoiled:
                    spoil(whole)
                for cut in (by_rows, by_columns, by_both, as_flat):
                    found = [ids(szt.audit(part, scheme=scheme, ranks=False)) for part in cut(make, whole)]
                    everyone = set().union(*found)
                    self.assertEqual(everyone & {name} if cut in (by_both, as_flat) and spoiled else everyone, {name} if spoiled else set(), f"{name} {cut.__name__} {found}")

    def test_parameters_never_initialised(self):
        module = szt.init_(tm.llama())
        to_empty(module)
        with self.assertRaisesRegex(AssertionError, "uninitialised(.|\n)*init_\\(module\\)"):
            szt.check(module)
        self.assertEqual(ids(szt.audit(module, scheme="hf")), {"uninitialised"})
        fresh = szt.init_(tm.llama())
        scale(fresh, "", 0)
        self.assertEqual(ids(szt.audit(fresh, scheme="hf")), {"uninitialised"})

    def test_lost_buffers(self):
        module = szt.init_(tm.llama())
        module.model.rotary_emb.inv_freq = torch.zeros(8)
        self.assertEqual(ids(szt.audit(module)), {"lost-buffer"})
        for wrong in (torch.full((8,), 1e-30), 500000.0 ** (-torch.arange(8) / 8), torch.full((8,), float("nan"))):
            module.model.rotary_emb.inv_freq = wrong
            self.assertEqual(ids(szt.audit(module)), {"lost-buffer"}, str(wrong))
        module = szt.init_(tm.gpt2())
        module.transformer.h[1].attn.bias.fill_(True)
        with self.assertRaisesRegex(AssertionError, "causal mask"):
            szt.check(module)

    def test_identical_shards(self):
        found = list(replicas.compare([replicas.held(m) for m in same_shards()]))
        self.assertEqual([f.id for f in found], ["identical-shards"])
        right = [szt.init_(distributed(tm.gpt2(), lambda shape: [Shard(0)], [2], [rank]), seed=1) for rank in range(2)]
        self.assertEqual(list(replicas.compare([replicas.held(m) for m in right])), [])

    def test_replicas_that_differ(self):
        found = list(replicas.compare([replicas.held(m) for m in other_replicas()]))
        self.assertEqual([f.id for f in found], ["replicas-differ"])
        self.assertIn("ranks 0 and 1", found[0].evidence)

    def test_across_real_processes(self):
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(process, (folder,), nprocs=2)


def process(rank, folder):
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    assert ids(szt.check(szt.init_(tm.gpt2(), seed=5))) == set()
    for modules, name in ((same_shards(), "identical-shards"), (other_replicas(), "replicas-differ"), ([szt.init_(tm.gpt2(), seed=r) for r in range(2)], "replicas-differ")):
        found = {f.id for f in szt.audit(modules[rank]).findings if f.severity == "error"}
        assert name in found, (name, found)
    dist.destroy_process_group()


class Checks(unittest.TestCase):
    def test_expectations(self):
        module = szt.init_(tm.gpt2(), seed=1)
        self.assertEqual(szt.check(module, szt.Expect(scheme="hf", loss=(5.2, 5.5))).scheme, "hf")
        with self.assertRaisesRegex(AssertionError, "loss by theory 5.3"):
            szt.check(module, szt.Expect(loss=(1, 2)))
        scale(module, "c_proj.weight", math.sqrt(6))
        self.assertEqual(szt.check(module, szt.Expect(scheme="gpt2", findings=["skipped-depth-scaling"])).verdict, "warnings")
        self.assertEqual(szt.check(module, szt.Expect(scheme="gpt2", until="error")).verdict, "warnings")
        with self.assertRaisesRegex(AssertionError, r"std +expected +z\n.*c_proj"):
            szt.check(module, "scheme:gpt2")
        with self.assertRaisesRegex(stepzero.StepzeroError, "neither scheme:NAME nor hf:MODEL"):
            szt.check(module, "gpt2")

    def test_state_dicts_and_no_configuration(self):
        module = szt.init_(tm.gpt2(), seed=1)
        found = szt.audit(module.state_dict(), config=tm.GPT2)
        self.assertEqual((ids(found), found.scheme), (set(), "hf"))
        self.assertEqual(len(found.tensors), 40)
        del module.config
        self.assertEqual(szt.audit(module).scheme, "hf")
        with self.assertRaisesRegex(stepzero.StepzeroError, "meta device"):
            szt.audit(tm.gpt2().to("meta"))

    def test_packed_and_half(self):
        for dtype in (torch.bfloat16, torch.float16):
            self.assertEqual(ids(szt.check(szt.init_(tm.mixtral(packed=True).to(dtype), seed=2))), set())

    def test_shards_are_looked_at(self):
        module = szt.init_(distributed(tm.gpt2(), lambda shape: [Shard(0)], [2], [1]), seed=1)
        self.assertEqual(ids(szt.check(module)), set())
        module.transformer.h[0].mlp.c_fc.weight._local_tensor.mul_(3)
        self.assertEqual([(f.id, f.where) for f in szt.audit(module).findings], [("departs-from-scheme", "transformer.h.0.mlp.c_fc.weight")])


class NoFalseAlarm(unittest.TestCase):
    def test_over_all_families(self):
        families = json.loads((ROOT / "tests/models/transformers_4.57.json").read_text())
        audits = 0
        for i, (family, entry) in enumerate(families.items()):
            if not ALL and i % 8:
                continue
            shapes = stepzero.Model(json.dumps(entry["config"])).tensors()
            module = tm.holding(shapes)
            module.config = entry["config"]
            for seed in range(20 if ALL else 2):
                found = szt.check(szt.init_(module, seed=seed))
                self.assertEqual(found.findings, [], f"{family} {seed}")
                audits += 1
        print(f"{audits} audits of {len(families)} families: no finding")
        self.assertGreater(audits, 900 if ALL else 10)


class Memory(unittest.TestCase):
    @unittest.skipUnless(ALL, "--all: needs 4 GB")
    def test_a_large_module_is_not_copied(self):
        """Resident memory, before and at its highest, of an audit of GPT-2 XL in bf16."""
        config = dict(tm.GPT2, n_layer=48, n_embd=1600, n_head=25, n_positions=1024, vocab_size=50257)
        module = tm.holding(stepzero.Model(json.dumps(config)).tensors(), torch.bfloat16)
        module.config = config
        szt.init_(module)
        count = sum(p.numel() for p in module.parameters())
        szt.audit({"warm.up_proj.weight": torch.ones(64, 64)})
        before = resident()
        found = szt.audit(module, consequences=False)  # a prediction takes memory of its own
        grown = (peak() - before) / 1e6
        print(f"{count / 1e9:.3f} thousand million parameters, {len(found.tensors)} tensors, {found.verdict}: {grown:.1f} MB more at the highest")
        self.assertGreater(count, 1.5e9)
        self.assertLess(grown, 64)


def status(key):
    with open("/proc/self/status", encoding="ascii") as file:
        return 1024 * int(next(line for line in file if line.startswith(key)).split()[1])


def resident():
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # the highest value begins here
    return status("VmRSS:")


def peak():
    return status("VmHWM:")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
