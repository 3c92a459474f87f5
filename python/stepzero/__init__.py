"""What a transformer will do before its first training step, and in its first steps.

    >>> import stepzero
    >>> model = stepzero.load("gpt2", set={"layers": 2, "width": 64, "heads": 4, "vocab": 500})
    >>> signal = model.predict(seq_len=16)
    >>> 6 < signal.loss.predicted < 7
    True
    >>> signal.nodes["stream.0"].forward.second_moment.predicted < 0.01
    True
    >>> stepzero.load("gtp2")
    Traceback (most recent call last):
    stepzero.errors.StepzeroError: unknown model "gtp2": neither a preset nor a file; did you mean gpt2?
    ...

Keywords are the flags of the command line with underscores. Nothing is done to the process: no output, no signal handlers, no settings."""
import os
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Union

from . import _lib
from .errors import BusyError, LibraryNotFound, StepzeroError
from .results import Audit, Finding, Node, Parameter, Report, Signal, Training, Value

__all__ = ["Audit", "BusyError", "Finding", "LibraryNotFound", "Model", "Node", "Parameter", "Report", "Signal", "StepzeroError", "Training",
           "Value", "audit", "load", "models", "schemes", "version"]

Setting = Union[str, int, float, bool]


def _text(value: Setting) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


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
        own = {"model": self.model, "set": [f"{k}={_text(v)}" for k, v in self.set.items()], "scheme": self.scheme, "like": self.like, "lora": self.lora}
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

    def init(self, path: Union[str, "os.PathLike[str]"], **options: Any) -> Dict[str, Any]:
        """Writes weights: a .safetensors file, or a directory with config.json and shards. seed, dtype, only, replace, max_shard_bytes."""
        result: Dict[str, Any] = self._call("init", {**options, "path": path}).json()
        return result

    def describe(self) -> str:
        """The architecture file, to be read, edited and loaded."""
        return _lib.call("describe", {"model": self.model, "set": [f"{k}={_text(v)}" for k, v in self.set.items()], "like": self.like})["text"]

    def graph(self) -> Dict[str, Any]:
        """The canonical graph: stepzero.graph/1."""
        texts = _lib.call("describe", {"model": self.model, "set": [f"{k}={_text(v)}" for k, v in self.set.items()], "like": self.like})
        result: Dict[str, Any] = texts.json()
        return result

    def tensors(self) -> List[Dict[str, Any]]:
        """Name, shape, role, layer and std of every tensor under the scheme."""
        result: List[Dict[str, Any]] = self._call("tensors", {}).json()["tensors"]
        return result

    def fill(self, tensor: str, data: int, count: int, seed: int = 0, first: int = 0, dtype: str = "f32") -> None:
        """Writes elements [first, first + count) of a tensor, as init would, to the memory at `data`: f32, bf16 or f16."""
        _lib.call("fill", self._request({"tensor": tensor, "seed": seed, "first": first, "count": count, "dtype": dtype}), data=data)


def load(model: Union[str, "os.PathLike[str]"], set: Optional[Mapping[str, Setting]] = None, scheme: str = "hf", like: str = "", lora: str = "") -> Model:
    """A preset, a config.json, a directory that holds one, or an architecture file."""
    loaded = Model(os.fspath(model), dict(set or {}), scheme, like, lora)
    loaded.tensors()  # what is wrong is told here
    return loaded


def audit(path: Union[str, "os.PathLike[str]"], **options: Any) -> Audit:
    """What is wrong with a safetensors or GGUF file, or a directory of shards: scheme, baseline, config, ..."""
    texts = _lib.call("audit", _clean({**options, "path": path}), threads=int(options.get("threads") or 0), progress=options.get("progress"))
    return Audit(texts.json(), texts["html"])


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
