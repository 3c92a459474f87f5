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

Keywords are the flags of the command line with underscores. Nothing is done to the process: no output, no signal handlers, no settings.
Names are looked up when they are first used: importing the package costs a few milliseconds."""
import importlib
from typing import TYPE_CHECKING, Any, List

if TYPE_CHECKING:
    from .errors import BusyError, LibraryNotFound, StepzeroError
    from .face import Model, audit, diff, load, models, schemes, version
    from .results import Audit, Comparison, Finding, Node, Parameter, Report, Signal, Training, Value
    from .verbs import Coord, Diff, Solved, Step, Sweep, Transfer

_HOMES = {"errors": ("BusyError", "LibraryNotFound", "StepzeroError"),
          "face": ("Model", "audit", "diff", "load", "models", "schemes", "version"),
          "results": ("Audit", "Comparison", "Finding", "Node", "Parameter", "Report", "Signal", "Training", "Value"),
          "verbs": ("Coord", "Diff", "Solved", "Step", "Sweep", "Transfer")}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = ("_lib", "arch", "errors", "face", "golden", "integrations", "results", "torch", "verbs")

__all__ = ["Audit", "BusyError", "Comparison", "Coord", "Diff", "Finding", "LibraryNotFound", "Model", "Node", "Parameter", "Report",
           "Signal", "Solved", "Step", "StepzeroError", "Sweep", "Training", "Transfer", "Value", "audit", "diff", "load", "models",
           "schemes", "version"]


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        value = getattr(importlib.import_module("." + _HOME_OF[name], __name__), name)
    elif name in _MODULES:
        value = importlib.import_module("." + name, __name__)
    else:
        raise AttributeError(f"module 'stepzero' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> List[str]:
    return sorted([*__all__, *_MODULES])
