"""Models under a scheme, and what can be asked of them: the calls of the package."""
import os
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from . import _lib
from .errors import BusyError, LibraryNotFound, StepzeroError
from .results import Audit, Comparison, Finding, Node, Parameter, Report, Signal, Training, Value
from .verbs import Coord, Diff, Solved, Step, Sweep, Transfer

Setting = Union[str, int, float, bool]


def _text(value: Setting) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _pairs(set: Mapping[str, Setting]) -> List[str]:
    return [f"{k}={_text(v)}" for k, v in set.items()]


def _clean(options: Mapping[str, Any]) -> Dict[str, Any]:
    out: Dict[str, Any] = {}
    for key, value in options.items():
        if value is None or key in ("threads", "progress"):
            continue
        out[key] = os.fspath(value) if isinstance(value, os.PathLike) else value
    return out


@dataclass(frozen=True)
class Model:
    """A model under a scheme. Loading one makes nothing; its methods do the work."""

    model: str
    set: Mapping[str, Setting] = field(default_factory=dict)
    scheme: str = "hf"
    like: str = ""
    lora: str = ""

    def _request(self, options: Mapping[str, Any]) -> Dict[str, Any]:
        own = {"model": self.model, "set": _pairs(self.set), "scheme": self.scheme, "like": self.like, "lora": self.lora}
        return {**own, **_clean(options)}

    def _call(self, name: str, options: Mapping[str, Any]) -> _lib.Texts:
        return _lib.call(name, self._request(options), threads=int(options.get("threads") or 0), progress=options.get("progress"))

    def predict(self, **options: Any) -> Signal:
        """Every moment by theory: seq_len, batch, tokens, order, jacobians, whole."""
        texts = self._call("predict", options)
        return Signal(texts.json(), texts["text"])

    def measure(self, **options: Any) -> Signal:
        """The same by real passes: seeds, seed, weights, weightless, stream, steps, optimizer, rate, ..."""
        texts = self._call("measure", options)
        return Signal(texts.json(), texts["text"])

    def compare(self, **options: Any) -> Signal:
        """Both, with error and z of every number in raw["comparison"], the worst first."""
        texts = self._call("compare", options)
        return Signal(texts.json(), texts["text"])

    def report(self, **options: Any) -> Report:
        """One self-contained page: measure=True also measures, compare_schemes=[...] lays other schemes over it."""
        texts = self._call("report", options)
        return Report(Signal(texts.json(), texts["text"]), texts["html"])

    def train(self, **options: Any) -> Training:
        """Trains it: text=[...], level, steps, batch, seq_len, optimizer, rate, schedule, seeds, save, resume, ..."""
        texts = self._call("train", options)
        return Training(texts.json(), texts["csv"], texts["html"])

    def step(self, **options: Any) -> Step:
        """What the first update does: optimizer, rate, measure, seeds, search=False leaves out the loss over the rate, ..."""
        texts = self._call("step", options)
        return Step(texts.json(), texts["text"], texts["html"])

    def coord(self, **options: Any) -> Coord:
        """A coordinate check: widths=[...] or depths=[...], optimizer, rate, steps, seeds, parametrization, ..."""
        texts = self._call("coord", options)
        return Coord(texts.json(), texts["text"], texts["html"])

    def transfer(self, target: Optional["Model"] = None, **options: Any) -> Transfer:
        """Rates, stds and multipliers carried from this model, the base, to a target: another model, or target_set={...}."""
        options = dict(options)
        for side in ("base_set", "target_set"):
            if isinstance(options.get(side), Mapping):
                options[side] = _pairs(options[side])
        if target is not None:
            options["target"] = target.model
            options["target_set"] = _pairs(target.set) + list(options.get("target_set", []))
        texts = self._call("transfer", options)
        return Transfer(texts.json(), texts["text"], "", texts["torch"], texts["scheme"], texts["rates"])

    def solve(self, **options: Any) -> Solved:
        """Scales that meet an objective: objective="depth", target=[...], free=[...], subject_to=[...], by, measure, ..."""
        texts = self._call("solve", options)
        return Solved(texts.json(), texts["text"], "", texts["scheme"], texts["rates"], texts["torch"])

    def sweep(self, over: Union[str, Sequence[str]], **options: Any) -> Sweep:
        """A map over one or two axes: over=["std.ffn_out=0.01..0.04:x5", "layers=2..8:3"]; train= runs a cell, and all that train takes."""
        texts = self._call("sweep", {**options, "over": [over] if isinstance(over, str) else list(over)})
        return Sweep(texts.json(), texts["text"], "", texts["csv"])

    def init(self, path: Union[str, "os.PathLike[str]"], **options: Any) -> Dict[str, Any]:
        """Writes weights: a .safetensors file, or a directory with config.json and shards. seed, dtype, only, replace, max_shard_bytes."""
        result: Dict[str, Any] = self._call("init", {**options, "path": path}).json()
        return result

    def describe(self) -> str:
        """The architecture file, to be read, edited and loaded."""
        return _lib.call("describe", {"model": self.model, "set": _pairs(self.set), "like": self.like})["text"]

    def graph(self) -> Dict[str, Any]:
        """The canonical graph: stepzero.graph/1."""
        texts = _lib.call("describe", {"model": self.model, "set": _pairs(self.set), "like": self.like})
        result: Dict[str, Any] = texts.json()
        return result

    def tensors(self) -> List[Dict[str, Any]]:
        """Name, shape, role, layer and std of every tensor under the scheme."""
        result: List[Dict[str, Any]] = self._call("tensors", {}).json()["tensors"]
        return result

    def fill(self, tensor: str, data: int, count: int, seed: int = 0, first: int = 0, dtype: str = "f32") -> None:
        """Writes elements [first, first + count) of a tensor, as init would, to the memory at `data`: f32, bf16 or f16."""
        piece = {"tensor": tensor, "first": first, "count": count, "dtype": dtype}
        _lib.call("fill", self._request({"seed": seed, "pieces": [piece]}), data=[data])


def load(model: Union[str, "os.PathLike[str]"], set: Optional[Mapping[str, Setting]] = None, scheme: str = "hf", like: str = "", lora: str = "") -> Model:
    """A preset, a config.json, a directory that holds one, or an architecture file."""
    loaded = Model(os.fspath(model), dict(set or {}), scheme, like, lora)
    loaded.tensors()  # what is wrong is told here
    return loaded


def audit(path: Union[str, "os.PathLike[str]"], **options: Any) -> Audit:
    """What is wrong with a safetensors or GGUF file, or a directory of shards: scheme, baseline, config, ..."""
    texts = _lib.call("audit", _clean({**options, "path": path}), threads=int(options.get("threads") or 0), progress=options.get("progress"))
    return Audit(texts.json(), texts["html"])


def diff(left: Union[str, "os.PathLike[str]"], right: Union[str, "os.PathLike[str]", Model], **options: Any) -> Diff:
    """Which tensors of two checkpoints differ, or of a checkpoint and of what init writes for a model (scheme=, seed=)."""
    request = _clean({**options, "left": left})
    if isinstance(right, Model):
        request = {**request, "right": right.model, "set": _pairs(right.set), "scheme": request.get("scheme", right.scheme)}
    else:
        request["right"] = os.fspath(right)
    texts = _lib.call("diff", request, threads=int(options.get("threads") or 0), progress=options.get("progress"))
    return Diff(texts.json(), texts["text"])


def models() -> List[Dict[str, Any]]:
    """The models known by name."""
    result: List[Dict[str, Any]] = _lib.listing("models")
    return result


def schemes() -> List[Dict[str, str]]:
    """The initialization schemes, with their sources."""
    result: List[Dict[str, str]] = _lib.listing("schemes")
    return result


def version() -> str:
    return _lib.version()
