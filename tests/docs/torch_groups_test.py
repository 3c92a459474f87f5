#!/usr/bin/env python3
"""The parameter groups that `transfer --format torch` writes, run on a model of stand-ins: no torch is needed.

    python3 tests/docs/torch_groups_test.py
"""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMAND = [ROOT / "build/release/stepzero", "transfer", "gpt2", "--set", "layers=1", "--set", "vocab=97", "--base-set", "width=32", "--base-set", "heads=2",
           "--target-set", "width=64", "--target-set", "heads=4", "--rate", "0.01", "--format", "torch"]


class Block:
    """A tensor that notes what it was filled with."""
    def __init__(self, shape, notes):
        self.shape, self.notes = shape, notes

    def view(self, rows, _):
        return Block((rows, self.shape[1]), self.notes)

    def __getitem__(self, at):
        return Block(tuple(s.stop - s.start for s in at), self.notes)

    def normal_(self, mean, std):
        self.notes.append((self.shape, mean, std))


class Parameter:
    def __init__(self, shape):
        self.notes = []
        self.data = Block(shape, self.notes)


class Model:
    def __init__(self, names):
        self.parameters = {name: Parameter((64, 192)) for name in names}

    def named_parameters(self):
        return self.parameters.items()


def groups_of(*more):
    text = subprocess.run([*COMMAND, *more], check=True, capture_output=True, text=True).stdout
    module = {}
    exec(text, module)
    return module, Model(module["TENSORS"])


def main():
    module, model = groups_of("--zero-query")
    groups = module["parameter_groups"](model)
    rates = {id(p): g["lr"] for g in groups for p in g["params"]}
    assert len(rates) == len(module["TENSORS"])
    assert rates[id(model.parameters["transformer.h.0.mlp.c_fc.weight"])] == 0.005
    assert rates[id(model.parameters["transformer.wte.weight"])] == 0.01
    module["initialize"](model)
    query, key, value = model.parameters["transformer.h.0.attn.c_attn.weight"].notes
    assert query == ((64, 64), 0, 0) and key[0] == (64, 64) and key[2] == value[2] > 0
    assert model.parameters["transformer.h.0.ln_1.weight"].notes == [((64, 192), 1, 0)]
    module, model = groups_of("--optimizer", "muon")
    muon, adam = (module["parameter_groups"](model, rule) for rule in ("muon", "adam"))
    assert sum(len(g["params"]) for g in muon) == 4 and muon and adam
    print("passed")


if __name__ == "__main__":
    sys.exit(main())
