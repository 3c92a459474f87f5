"""Results as plain data: the JSON contracts (docs/json.md) as classes. `raw` holds all that was told."""
import html
import importlib
import json
import math
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple


@dataclass(frozen=True)
class Value:
    """A number by theory, with the spread of single draws, and by measurement, with its standard error."""

    predicted: Optional[float] = None
    spread: Optional[float] = None
    measured: Optional[float] = None
    stderr: Optional[float] = None

    @staticmethod
    def of(data: Optional[Dict[str, Any]]) -> "Value":
        data = data or {}
        return Value(data.get("predicted"), data.get("spread"), data.get("measured"), data.get("stderr"))

    @property
    def best(self) -> Optional[float]:
        """What was measured, else what theory says."""
        return self.measured if self.measured is not None else self.predicted

    @property
    def z(self) -> Optional[float]:
        """How many spreads one measured draw lies from the prediction."""
        if self.measured is None or self.predicted is None or not self.spread:
            return None
        return (self.measured - self.predicted) / self.spread


@dataclass(frozen=True)
class Forward:
    second_moment: Value
    variance: Value
    mean: Value
    token_cosine: Value


@dataclass(frozen=True)
class Backward:
    norm: Value
    second_moment: Value
    token_cosine: Value


@dataclass(frozen=True)
class Node:
    name: str
    kind: str
    grade: str
    forward: Forward
    backward: Backward


@dataclass(frozen=True)
class Attention:
    name: str
    score_variance: Value
    entropy: Value
    sum_squares: Value


@dataclass(frozen=True)
class Parameter:
    name: str
    shape: Tuple[int, ...]
    std: Value
    gradient_norm: Value
    frozen: bool = False


@dataclass(frozen=True)
class Finding:
    id: str
    severity: str
    where: str
    evidence: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.severity}: {self.id} at {self.where}: {self.evidence}"


class Named(Sequence[Any]):
    """A list whose entries are found by name too."""

    def __init__(self, items: Sequence[Any]) -> None:
        self._items = list(items)
        self._by_name = {item.name: item for item in self._items}

    def __getitem__(self, key: Any) -> Any:
        return self._by_name[key] if isinstance(key, str) else self._items[key]

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __contains__(self, key: object) -> bool:
        return key in self._by_name or key in self._items

    def names(self) -> List[str]:
        return [item.name for item in self._items]


def findings_of(data: Dict[str, Any]) -> List[Finding]:
    return [Finding(f["id"], f["severity"], f.get("where", ""), f.get("evidence", ""), f.get("remedy", "")) for f in data.get("findings", [])]


_RANK = {"note": 0, "warning": 1, "error": 2}


def _verdict(findings: Sequence[Finding]) -> str:
    worst = max((_RANK.get(f.severity, 0) for f in findings), default=-1)
    return {-1: "nothing found", 0: "notes only", 1: "warnings", 2: "errors"}[worst]


@dataclass(repr=False)
class Signal:
    """The sizes of everything at step zero: predict, measure and compare."""

    raw: Dict[str, Any]
    table: str = ""
    model: Dict[str, Any] = field(init=False)
    loss: Value = field(init=False)
    gradient_norm: Value = field(init=False)
    nodes: Named = field(init=False)
    attention: Named = field(init=False)
    parameters: Named = field(init=False)
    findings: List[Finding] = field(init=False)

    def __post_init__(self) -> None:
        d = self.raw
        self.model = d["model"]
        self.loss, self.gradient_norm = Value.of(d["loss"]), Value.of(d["gradient_norm"])
        self.nodes = Named([Node(n["name"], n.get("kind", ""), n.get("grade", ""),
                                 Forward(*(Value.of(n["forward"].get(k)) for k in ("second_moment", "variance", "mean", "token_cosine"))),
                                 Backward(*(Value.of(n["backward"].get(k)) for k in ("norm", "second_moment", "token_cosine"))))
                            for n in d["nodes"]])
        self.attention = Named([Attention(a["name"], *(Value.of(a.get(k)) for k in ("score_variance", "entropy", "sum_squares")))
                                for a in d.get("attention", [])])
        self.parameters = Named([Parameter(p["name"], tuple(p["shape"]), Value.of(p.get("std")), Value.of(p.get("gradient_norm")),
                                           bool(p.get("frozen", False))) for p in d["parameters"]])
        self.findings = findings_of(d)

    @property
    def stream(self) -> List[Node]:
        """The residual stream, from the embeddings to the last block."""
        return [n for n in self.nodes if n.name.startswith("stream.") or ".stream." in n.name]

    @property
    def verdict(self) -> str:
        return _verdict(self.findings)

    def __repr__(self) -> str:
        return self.table or f"<Signal of {self.model['name']}: loss {self.loss.best}, {self.verdict}>"

    def _repr_html_(self) -> str:
        found = "".join(f"<li><b>{html.escape(f.severity)}</b> {html.escape(f.id)}: {html.escape(f.evidence)}</li>" for f in self.findings)
        forward = chart("E[x²] of the stream", [n.forward.second_moment for n in self.stream])
        backward = chart("gradient norm of the stream", [n.backward.norm for n in self.stream])
        loss = self.loss.best
        return (f"<div><p><b>{html.escape(str(self.model['name']))}</b>, scheme {html.escape(str(self.raw.get('scheme', '')))}: "
                f"loss {loss:.4g}, {html.escape(self.verdict)}</p><ul>{found}</ul>{forward}{backward}</div>"
                if loss is not None else f"<pre>{html.escape(repr(self))}</pre>")

    def to_rows(self) -> List[Dict[str, Any]]:
        """A row for every number: where, what, predicted, spread, measured, stderr."""
        rows: List[Dict[str, Any]] = []

        def add(where: str, what: str, v: Value) -> None:
            if v.best is not None:
                rows.append({"where": where, "what": what, "predicted": v.predicted, "spread": v.spread, "measured": v.measured, "stderr": v.stderr})

        add("model", "loss", self.loss)
        add("model", "gradient_norm", self.gradient_norm)
        for n in self.nodes:
            for what in ("second_moment", "variance", "mean", "token_cosine"):
                add(n.name, what, getattr(n.forward, what))
            for what in ("norm", "second_moment", "token_cosine"):
                add(n.name, "gradient " + what, getattr(n.backward, what))
        for a in self.attention:
            for what in ("score_variance", "entropy", "sum_squares"):
                add(a.name, what, getattr(a, what))
        for p in self.parameters:
            add(p.name, "std", p.std)
            add(p.name, "gradient_norm", p.gradient_norm)
        return rows

    def to_pandas(self) -> Any:
        """The rows as a DataFrame."""
        return importlib.import_module("pandas").DataFrame(self.to_rows())


def chart(title: str, values: Sequence[Value], width: int = 320, height: int = 110) -> str:
    """A small line on a logarithmic scale: theory as a line, measurement as dots. Needs nothing else."""
    numbers = [x for v in values for x in (v.predicted, v.measured) if x is not None and x > 0 and math.isfinite(x)]
    if len(values) < 2 or not numbers:
        return ""
    low, high = math.log10(min(numbers)), math.log10(max(numbers))
    low, high = (low - 0.5, high + 0.5) if high - low < 1 else (low, high)

    def place(i: int, x: float) -> Tuple[float, float]:
        return 40 + i * (width - 50) / (len(values) - 1), 20 + (high - math.log10(x)) / (high - low) * (height - 35)

    line = " ".join("%.1f,%.1f" % place(i, v.predicted) for i, v in enumerate(values) if v.predicted is not None and v.predicted > 0)
    dots = "".join('<circle cx="%.1f" cy="%.1f" r="2.5"/>' % place(i, v.measured) for i, v in enumerate(values) if v.measured is not None and v.measured > 0)
    marks = "".join(f'<text x="2" y="{20 + (high - at) / (high - low) * (height - 35) + 4:.0f}">{10 ** at:.2g}</text>' for at in (low, high))
    return (f'<svg width="{width}" height="{height}" font-size="10" fill="currentColor" role="img" aria-label="{html.escape(title)}">'
            f'<text x="40" y="12">{html.escape(title)}</text>{marks}<polyline points="{line}" fill="none" stroke="#3366cc" stroke-width="1.5"/>{dots}</svg>')


@dataclass(frozen=True)
class Row:
    """A number beside its prediction."""

    where: str
    what: str
    predicted: float
    spread: Optional[float]
    measured: float

    @property
    def z(self) -> Optional[float]:
        """Spreads of single draws between the two."""
        return (self.measured - self.predicted) / self.spread if self.spread else None


def _rounding(what: str, predicted: float, seen: float) -> bool:
    """Whether a parameter's gradient that is 0 in theory, as that of a bias of keys, is rounding noise in practice: nothing to compare."""
    return what == "gradient_norm" and predicted < 1e-8 and seen < 1e-6


class Comparison:
    """A prediction and what was seen, row by row, the worst first."""

    def __init__(self, predicted: Signal, measured: Signal) -> None:
        self.predicted, self.measured = predicted, measured
        seen = {(r["where"], r["what"]): r["measured"] for r in measured.to_rows()}
        rows = [Row(r["where"], r["what"], r["predicted"], r["spread"], seen[r["where"], r["what"]]) for r in predicted.to_rows()
                if seen.get((r["where"], r["what"])) is not None and r["predicted"] is not None and not _rounding(r["what"], r["predicted"], seen[r["where"], r["what"]])]
        self.rows = sorted(rows, key=lambda r: -abs(r.z or 0))

    def within(self, spreads: float = 5) -> float:
        """The share of the numbers that lie so near."""
        judged = [r for r in self.rows if r.z is not None]
        return sum(abs(r.z or 0) <= spreads for r in judged) / max(1, len(judged))

    def _title(self) -> str:
        return f"{self.measured.model['name']}: {len(self.rows)} numbers beside their predictions, {100 * self.within():.1f} % within 5 spreads"

    def __repr__(self) -> str:
        lines = [self._title(), f"  {'where':28} {'what':24} {'predicted':>11} {'seen':>11} {'z':>7}"]
        for r in self.rows[:20]:
            lines.append(f"  {r.where[-28:]:28} {r.what:24} {r.predicted:11.4g} {r.measured:11.4g} {'' if r.z is None else f'{r.z:.1f}':>7}")
        return "\n".join(lines + ([f"  and {len(self.rows) - 20} more"] if len(self.rows) > 20 else []))

    def _repr_html_(self) -> str:
        both = self.joined
        forward = chart("E[x²] of the stream", [n.forward.second_moment for n in both.stream])
        backward = chart("gradient norm of the stream", [n.backward.norm for n in both.stream])
        cells = "".join(f"<tr><td>{html.escape(r.where)}</td><td>{html.escape(r.what)}</td><td>{r.predicted:.4g}</td><td>{r.measured:.4g}</td>"
                        f"<td>{'' if r.z is None else f'{r.z:.1f}'}</td></tr>" for r in self.rows[:12])
        return (f"<div><p>{html.escape(self._title())}</p>{forward}{backward}<table><tr><th>where</th><th>what</th><th>predicted</th><th>seen</th><th>z</th></tr>"
                f"{cells}</table></div>")

    @property
    def joined(self) -> Signal:
        """The prediction with what was seen filled in."""
        raw = json.loads(json.dumps(self.predicted.raw))

        def fill(to: Dict[str, Any], seen: Dict[str, Any]) -> None:
            for key, value in seen.items():
                if isinstance(value, dict) and isinstance(to.get(key), dict):
                    if "measured" in value:
                        to[key].update(value)
                    else:
                        fill(to[key], value)

        fill(raw, {k: v for k, v in self.measured.raw.items() if k in ("loss", "gradient_norm")})
        for part in ("nodes", "attention", "parameters"):
            seen = {entry["name"]: entry for entry in self.measured.raw[part]}
            for entry in raw[part]:
                fill(entry, seen.get(entry["name"], {}))
        return Signal(raw)

    def to_rows(self) -> List[Dict[str, Any]]:
        return [{"where": r.where, "what": r.what, "predicted": r.predicted, "spread": r.spread, "measured": r.measured, "z": r.z} for r in self.rows]

    def to_pandas(self) -> Any:
        """The rows as a DataFrame."""
        return importlib.import_module("pandas").DataFrame(self.to_rows())


@dataclass(repr=False)
class Report:
    """A page that needs nothing else, and the signal it shows."""

    signal: Signal
    html: str

    def save(self, path: str) -> None:
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.html)

    def __repr__(self) -> str:
        return f"<Report of {self.signal.model['name']}: {len(self.html)} bytes of HTML; save(path) writes it>"


@dataclass(repr=False)
class Training:
    """What train gave: stepzero.train/1."""

    raw: Dict[str, Any]
    csv: str
    html: str

    @property
    def runs(self) -> List[Dict[str, Any]]:
        return list(self.raw["runs"])

    def losses(self, run: int = 0) -> List[float]:
        return [step["loss"] for step in self.raw["runs"][run]["steps"]]

    def validation(self, run: int = 0) -> List[Tuple[int, float]]:
        return [(v["step"], v["loss"]) for v in self.raw["runs"][run].get("validation", [])]

    @property
    def outcomes(self) -> List[str]:
        return [run["outcome"] for run in self.raw["runs"]]

    def _repr_html_(self) -> str:
        charts = "".join(chart(f"loss, seed {run['seed']}: {run['outcome']}", [Value(predicted=x) for x in self.losses(i)]) for i, run in enumerate(self.runs[:8]))
        return f"<div>{charts}<pre>{html.escape(repr(self))}</pre></div>"

    def __repr__(self) -> str:
        lines = [f"{len(self.raw['runs'])} runs"]
        for i, run in enumerate(self.raw["runs"]):
            losses = self.losses(i)
            lines.append(f"  seed {run['seed']}: {run['outcome']}, loss {losses[0]:.4g} to {losses[-1]:.4g} in {len(losses) - 1} updates")
        return "\n".join(lines)


@dataclass(repr=False)
class Audit:
    """What is wrong with weights that exist: stepzero.audit/1."""

    raw: Dict[str, Any]
    html: str
    findings: List[Finding] = field(init=False)

    def __post_init__(self) -> None:
        self.findings = findings_of(self.raw)

    @property
    def tensors(self) -> List[Dict[str, Any]]:
        return list(self.raw["tensors"])

    @property
    def scheme(self) -> Optional[str]:
        return self.raw.get("scheme")

    @property
    def verdict(self) -> str:
        return _verdict(self.findings)

    def _repr_html_(self) -> str:
        rows = "".join("<tr>" + "".join(f"<td>{html.escape(x)}</td>" for x in (f.severity, f.id, f.where, f.evidence, f.remedy)) + "</tr>" for f in self.findings)
        table = f"<table><tr><th></th><th>finding</th><th>where</th><th>evidence</th><th>remedy</th></tr>{rows}</table>" if rows else ""
        return f"<div><p>{len(self.tensors)} tensors, scheme {html.escape(str(self.scheme))}: <b>{html.escape(self.verdict)}</b></p>{table}</div>"

    def __repr__(self) -> str:
        lines = [f"{len(self.tensors)} tensors, scheme {self.scheme}: {self.verdict}"]
        return "\n".join(lines + [f"  {f}" for f in self.findings])
