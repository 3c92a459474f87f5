#!/usr/bin/env python3
"""python/stepzero/arch.pyi: what editors and mypy know of the words of architecture files. Made from words.py.

    python3 tests/python/arch_stub.py --write
"""
import ast
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
STUB = ROOT / "python/stepzero/arch.pyi"
WIRES = {"x", "f", "a", "b", "q", "k", "v", "own", "shared", "routed", "logits", "memory", "step", "into"}
RETURNS = {"branch": "None", "stream": "None", "stack": "None", "loss": "None", "unused": "None", "share_weights": "None", "fused": "List[Wire]", "fused_apart": "List[Wire]", "causal_conv": "List[Wire]", "alibi_slopes": "List[float]", "activation_key": "str",
           "rope_keys": "List[Any]", "rope": "List[Any]", "rope_theta_key": "float", "turned_part_key": "float"}
LAWS = {"normal", "truncated", "uniform", "constant", "given", "only_if", "distance_table", "scalar", "time_steps", "waves"}

HEAD = '''"""The words of architecture files (docs/architectures.md). Made from words.py by tests/python/arch_stub.py."""
from typing import Any, Dict, List, Mapping, Optional, Sequence

class Error(Exception): ...

class Wire:
    number: int
    factor: float
    def __add__(self, other: Any) -> Wire: ...
    def __sub__(self, other: Any) -> Wire: ...
    def __mul__(self, other: Any) -> Wire: ...
    def __rmul__(self, other: Any) -> Wire: ...
    def __truediv__(self, other: Any) -> Wire: ...
    def __neg__(self) -> Wire: ...

class Tensor:
    number: int
    def __mul__(self, other: Any) -> Any: ...

class Graph:
    nodes: List[Dict[str, Any]]
    tensors: List[Dict[str, Any]]
    def json(self) -> Dict[str, Any]: ...

from math import ceil as ceil, cos as cos, exp as exp, floor as floor, log as log, pi as pi, sin as sin, sqrt as sqrt
from .face import Model

def arch(name: str, **sizes: Any) -> None:
    """Begins a model: its name, and sizes that --set can change, which become variables."""

def graph() -> Graph:
    """What was built since arch()."""

def model(scheme: str = ...) -> Model:
    """The stepzero.Model of what was built since arch(): predict, measure, init, ..."""

def key(name: str, otherwise: Any, also: Sequence[str] = ..., null: Any = ...) -> Any:
    """What a config.json says under this name, of the default's type; the default where it says nothing."""

def count_key(path: str, otherwise: int) -> int:
    """How many entries an object or a list of a config.json has."""

def ignored(*names: str) -> None:
    """Keys of a config.json that change nothing about the model."""

def fail(message: str, remedy: str = ...) -> None: ...

def run(text: str, name: str = ..., settings: Any = ..., config: Optional[Mapping[str, Any]] = ...) -> Dict[str, Any]:
    """The canonical graph of a file's text; config: what a config.json says to a family's file."""

def main(words: List[str]) -> None: ...
'''


def kind_of(name, default):
    if name in WIRES:
        return "Wire"
    value = ast.literal_eval(default) if default is not None else None
    for kind in (bool, int, float, str):
        if type(value) is kind:
            return kind.__name__
    return "Sequence[Any]" if isinstance(value, list) else "str" if name == "name" else "Any"


def stub():
    made = {}  # a word that is defined again is the later one
    for f in ast.parse((ROOT / "python/stepzero/words.py").read_text(encoding="utf-8")).body:
        if not isinstance(f, ast.FunctionDef) or f.name.startswith("_"):
            continue
        defaults = [None] * (len(f.args.args) - len(f.args.defaults)) + f.args.defaults
        words = ", ".join(f"{a.arg}: {kind_of(a.arg, d)}" + ("" if d is None else " = ...") for a, d in zip(f.args.args, defaults))
        returns = RETURNS.get(f.name, "Any" if f.name in LAWS else "Wire")
        told = ast.get_docstring(f)
        body = f'\n    """{told}"""\n' if told else " ...\n"
        made[f.name] = f"\ndef {f.name}({words}) -> {returns}:{body}"
    return HEAD + "".join(made.values())


def main():
    if "--write" in sys.argv:
        STUB.write_text(stub(), encoding="utf-8")
    elif STUB.read_text(encoding="utf-8") != stub():
        sys.exit("python/stepzero/arch.pyi is not what words.py says: python3 tests/python/arch_stub.py --write")


if __name__ == "__main__":
    main()
