"""check: an assertion about a module's weights, for a test suite."""
import math
from dataclasses import dataclass
from typing import Any, List, Optional, Sequence, Tuple, Union

from ..errors import StepzeroError
from ..results import Audit, Finding
from .auditing import Weights, audit

_RANK = {"note": 0, "warning": 1, "error": 2}


@dataclass(frozen=True)
class Expect:
    """What a module's weights must be.

    scheme    that they follow; None: whichever they follow
    config    of the model; None: the module's own
    loss      the range in which the loss must lie by theory, given the weights' own moments
    findings  "none", or the names of findings that are known and allowed
    until     findings of less severity than this do not count: "note", "warning", "error"
    """

    scheme: Optional[str] = None
    config: Any = None
    loss: Optional[Tuple[float, float]] = None
    findings: Union[str, Sequence[str]] = "none"
    until: str = "warning"

    @staticmethod
    def of(words: Union[str, "Expect"]) -> "Expect":
        """`scheme:NAME`, `hf:MODEL` (a preset as its own class draws it), or an Expect.

        >>> Expect.of("hf:gpt2").config
        'gpt2'
        """
        if isinstance(words, Expect):
            return words
        kind, _, name = words.partition(":")
        if kind == "scheme" and name:
            return Expect(scheme=name)
        if kind == "hf" and name:
            return Expect(scheme="hf", config=name)
        raise StepzeroError(f'expect="{words}" is neither scheme:NAME nor hf:MODEL', "or stepzero.torch.Expect(scheme=..., loss=(low, high), ...)")


class CheckError(AssertionError):
    """The table of departures; `audit` is what was found."""

    def __init__(self, message: str, found: Optional[Audit] = None) -> None:
        super().__init__(message)
        self.audit = found


def counted(found: Audit, expect: Expect) -> List[Finding]:
    """The findings that count against an expectation."""
    if expect.until not in _RANK:
        raise StepzeroError(f'until="{expect.until}" is no severity', "one of note, warning, error")
    allowed = () if isinstance(expect.findings, str) else tuple(expect.findings)
    return [f for f in found.findings if _RANK.get(f.severity, 2) >= _RANK[expect.until] and f.id not in allowed]


def _departures(found: Audit, most: int = 12) -> List[str]:
    rows = [t for t in found.tensors if t.get("departs")]
    rows.sort(key=lambda t: -abs(float(t.get("z") or 0)))
    if not rows:
        return []
    width = max(len(t["name"]) for t in rows[:most])
    lines = [f"  {'tensor':{width}}  {'mean':>10}  {'std':>10}  {'expected':>14}  {'z':>8}"]
    for t in rows[:most]:
        z = t.get("z")
        lines.append(f"  {t['name']:{width}}  {t['mean'] or 0:10.3g}  {t['std'] or 0:10.4g}  {t['expected']:>14}  {'' if z is None or not math.isfinite(z) else f'{z:.3g}':>8}")
    return lines + ([f"  and {len(rows) - most} more"] if len(rows) > most else [])


def describe(found: Audit, wrong: Sequence[Finding], expect: Expect, name: str, loss: Optional[float]) -> str:
    lines = [f"{name}: {len(wrong)} finding{'s' if len(wrong) != 1 else ''} against scheme {expect.scheme or found.scheme or '(none)'}"]
    for f in wrong:
        lines += [f"  {f.severity}: {f.id} at {f.where}", f"    {f.evidence}"] + ([f"    remedy: {f.remedy}"] if f.remedy else [])
    if loss is not None and expect.loss is not None:
        lines.append(f"  loss by theory {loss:.4g}, expected {expect.loss[0]:g} to {expect.loss[1]:g}")
    return "\n".join(lines + _departures(found))


def predicted_loss(found: Audit) -> Optional[float]:
    """What theory says of the loss, given the weights' own moments."""
    loss = found.raw.get("consequences", {}).get("found", {}).get("loss")
    return None if loss is None else float(loss)


def check(weights: Weights, expect: Union[str, Expect] = "scheme:hf", **options: Any) -> Audit:
    """Raises an AssertionError that lists what departs; returns the audit where nothing does.

    Beside the mistakes that audit knows: parameters never initialised after to_empty, buffers lost with it, shards that are the same numbers, replicas
    that differ.

    >>> import torch, stepzero.torch
    >>> weights = {"model.layers.0.mlp.up_proj.weight": torch.full((64, 32), float("nan"))}
    >>> try:
    ...     stepzero.torch.check(weights)
    ... except AssertionError as error:
    ...     print("uninitialised" in str(error))
    True
    """
    e = Expect.of(expect)
    found = audit(weights, config=options.pop("config", e.config), scheme=e.scheme, consequences=e.loss is not None, **options)
    wrong = counted(found, e)
    loss = predicted_loss(found) if e.loss is not None else None
    if e.loss is not None and loss is None:
        raise StepzeroError("the loss is not known: without a configuration there is no model to predict", "config=, or no loss=")
    outside = e.loss is not None and loss is not None and not e.loss[0] <= loss <= e.loss[1]
    if wrong or outside:
        raise CheckError(describe(found, wrong, e, type(weights).__name__, loss if outside else None), found)
    return found
