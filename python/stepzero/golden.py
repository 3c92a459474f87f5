"""The laws of a module's tensors, kept beside a test: another seed passes, another law does not."""
import json
import math
import pathlib
from typing import Any, Dict, List

from .results import Audit


def laws_of(found: Audit) -> Dict[str, Dict[str, Any]]:
    """Of each tensor its shape, the kind of law, mean and std."""
    out: Dict[str, Dict[str, Any]] = {}
    for t in found.tensors:
        law = str(t["pieces"][0]["law"]).split(",")[0].split(" ")[0] if t.get("pieces") else ""
        out[t["name"]] = {"shape": t["shape"], "law": law, "mean": t.get("mean"), "std": t.get("std")}
    return out


def _differs(old: Dict[str, Any], new: Dict[str, Any]) -> str:
    """In words; empty: the same law. Two samples of n numbers differ by sqrt(1/n) of their std at most, 6.5 times that never."""
    if old["shape"] != new["shape"]:
        return f"shape {new['shape']}, was {old['shape']}"
    count = max(1, math.prod(new["shape"]))
    reach = 6.5 * math.sqrt(2.5 / count)
    for what, unit in (("mean", old["std"] or 0.0), ("std", old["std"] or 0.0)):
        a, b = old[what], new[what]
        if (a is None) != (b is None) or (a is not None and not abs(a - b) <= max(reach * unit, 1e-6 * abs(a))):
            return f"{what} {b:.4g}, was {a:.4g}" if a is not None and b is not None else f"{what} {b}, was {a}"
    known = {"normal", "uniform", "constant"}
    if old["law"] != new["law"] and {old["law"], new["law"]} <= known and count >= 4096:
        return f"law {new['law']}, was {old['law']}"
    return ""


def compare(path: pathlib.Path, found: Audit) -> List[str]:
    """What departs from the laws kept in a file."""
    old: Dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    new = laws_of(found)
    lines = [f"{name}: {words}" for name in old if name in new for words in [_differs(old[name], new[name])] if words]
    return lines + [f"{name}: is gone" for name in old if name not in new] + [f"{name}: is new" for name in new if name not in old]


def write(path: pathlib.Path, found: Audit) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(laws_of(found), indent=1, sort_keys=True) + "\n", encoding="utf-8")
