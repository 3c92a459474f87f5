"""What step, coord, transfer, solve, sweep and diff give: their JSON contracts (docs/json.md), with the parts that one asks for by name."""
import html
import importlib
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple

from .results import Finding, Named, Value, chart, findings_of


@dataclass(repr=False)
class Told:
    """`raw` is the JSON, `text` the terminal's table, `html` a page that needs nothing else (empty where there is none)."""

    raw: Dict[str, Any]
    text: str = ""
    html: str = ""

    def __repr__(self) -> str:
        return self.text or f"<{type(self).__name__} of {self.raw.get('model')}>"

    def _repr_html_(self) -> str:
        return f"<div>{self._chart()}<pre>{html.escape(self.text)}</pre></div>"

    def _chart(self) -> str:
        return ""

    def save(self, path: str) -> None:
        """Writes the page."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.html)


@dataclass(frozen=True)
class StreamChange:
    name: str
    change: Value
    relative: Value


@dataclass(frozen=True)
class ParameterChange:
    name: str
    update_norm: Value
    relative: Value
    direct_change: Value
    decrease: Value


@dataclass(repr=False)
class Step(Told):
    """What the first update does: stepzero.step/1.

    >>> import stepzero
    >>> model = stepzero.load("gpt2", set={"layers": 1, "width": 32, "heads": 2, "vocab": 97})
    >>> step = model.step(rate=1e-3, seq_len=8, search=False)
    >>> step.streams["stream.1"].relative.predicted > 0
    True
    """

    streams: Named = field(init=False)
    parameters: Named = field(init=False)
    before: Value = field(init=False)
    after: Value = field(init=False)
    findings: List[Finding] = field(init=False)

    def __post_init__(self) -> None:
        d = self.raw
        self.streams = Named([StreamChange(s["name"], Value.of(s.get("change")), Value.of(s.get("relative"))) for s in d["streams"]])
        self.parameters = Named([ParameterChange(p["name"], *(Value.of(p.get(k)) for k in ("update_norm", "relative", "direct_change", "decrease")))
                                 for p in d["parameters"]])
        self.before, self.after = Value.of(d["loss"].get("before")), Value.of(d["loss"].get("after"))
        self.findings = findings_of(d)

    @property
    def rates(self) -> List[Tuple[float, Value]]:
        """The loss after the step, over the rate."""
        return [(r["rate"], Value.of(r["loss"])) for r in self.raw.get("rates", [])]

    def _chart(self) -> str:
        return chart("relative change of the stream", [s.relative for s in self.streams])


@dataclass(frozen=True)
class CoordRow:
    what: str
    step: int
    values: Tuple[Value, ...]
    slope: float
    stderr: Optional[float]
    expected: Any
    verdict: str


@dataclass(repr=False)
class Coord(Told):
    """A coordinate check: stepzero.coord/1. `passed` says whether every slope is what is demanded."""

    @property
    def rows(self) -> List[CoordRow]:
        return [CoordRow(r["what"], r.get("step", 0), tuple(Value.of(v) for v in r["values"]), r.get("slope"), r.get("stderr"), r.get("expected"), r["verdict"])
                for r in self.raw["rows"]]

    @property
    def values(self) -> List[int]:
        """The widths or depths."""
        return list(self.raw["values"])

    @property
    def passed(self) -> bool:
        return bool(self.raw["verdict"] == "pass")

    def failed(self) -> List[CoordRow]:
        return [r for r in self.rows if r.verdict == "fail"]

    def to_pandas(self) -> Any:
        """A row for each quantity and step, a column for each width or depth."""
        rows = [{"what": r.what, "step": r.step, **{str(n): v.best for n, v in zip(self.values, r.values)}, "slope": r.slope, "verdict": r.verdict} for r in self.rows]
        return importlib.import_module("pandas").DataFrame(rows)


@dataclass(repr=False)
class Transfer(Told):
    """Settings carried to another size: stepzero.transfer/1.

    torch   PyTorch code: parameter groups, and initialization
    scheme  the text of a scheme's file; rates that of a table of rates
    """

    torch: str = ""
    scheme: str = ""
    rates: str = ""


@dataclass(repr=False)
class Solved(Told):
    """Scales that meet an objective: stepzero.solve/1. `scheme` is the text of a scheme's file, `rates` that of a table, `torch` PyTorch code."""

    scheme: str = ""
    rates: str = ""
    torch: str = ""

    @property
    def targets(self) -> List[Dict[str, Any]]:
        return list(self.raw["targets"])

    @property
    def scales(self) -> List[Dict[str, Any]]:
        return list(self.raw["scales"])


@dataclass(repr=False)
class Sweep(Told):
    """A map over one or two axes: stepzero.sweep/1. `csv` is a row a cell."""

    csv: str = ""

    @property
    def axes(self) -> List[Dict[str, Any]]:
        return list(self.raw["axes"])

    def to_rows(self) -> List[Dict[str, Any]]:
        """A row for each cell: where it lies, its quantities, or why there is no such model."""
        keys = [axis["key"] for axis in self.axes]
        return [{**dict(zip(keys, cell["at"])), **cell.get("quantities", {}), **({"error": cell["error"]} if cell.get("error") else {})} for cell in self.raw["cells"]]

    def to_pandas(self) -> Any:
        """The cells as a DataFrame."""
        return importlib.import_module("pandas").DataFrame(self.to_rows())


@dataclass(repr=False)
class Diff(Told):
    """Which tensors of two checkpoints differ, and in what: stepzero.diff/1."""

    @property
    def tensors(self) -> List[Dict[str, Any]]:
        return list(self.raw["tensors"])

    @property
    def same(self) -> bool:
        """Every tensor, to the bit."""
        return bool(self.raw["different"] == 0)
