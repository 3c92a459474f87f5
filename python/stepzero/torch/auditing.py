"""audit: what is wrong with the weights of a live module. They are read where they lie."""
import fnmatch
import json
import math
import re
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

import torch

from .. import _lib
from ..errors import StepzeroError
from ..results import Audit, Finding
from .buffers import buffer_findings
from .filling import targets_of
from .memory import Target, on_host, refuse_meta
from .names import Shape, bind, clean
from .replicas import compare_ranks
from .shards import Box, local_parts
from .source import Source, config_text, find_source, inner

_DTYPES = {torch.float32: "F32", torch.float64: "F64", torch.float16: "F16", torch.bfloat16: "BF16"}
Weights = Union[torch.nn.Module, Mapping[str, torch.Tensor]]
_UNINITIALISED = "to_empty() gives memory, not numbers: init_(module), or reset_parameters() of every child that has one"


def _parts(weights: Weights) -> List[Any]:
    """Parameters, and of a state_dict every tensor of numbers, once."""
    if isinstance(weights, torch.nn.Module):
        return list(local_parts(weights))
    seen: Dict[Tuple[int, Shape], str] = {}
    out: List[Any] = []
    for name, t in weights.items():
        if not isinstance(t, torch.Tensor) or t.dtype not in _DTYPES:
            continue
        shape = tuple(t.shape)
        if t.numel() > 0 and not t.is_meta and seen.setdefault((t.data_ptr(), shape), name) != name:
            continue  # tied
        out.append(Box(clean(name), t, shape, (0,) * len(shape), shape))
    return out


def _request(weights: Weights, shapes: Mapping[str, Shape], config: Any, options: Dict[str, Any]) -> Tuple[Dict[str, Any], Optional[Source]]:
    """What the audit is asked, and the model where there is one."""
    own = getattr(inner(weights), "config", None) if isinstance(weights, torch.nn.Module) else None
    text = config_text(config if config is not None else own) if config is not None or own is not None else None
    if config is not None and text is None:
        raise StepzeroError(f"config={type(config).__name__} does not say its model_type", 'a preset such as "gpt2", a path, a dict or an object with to_dict()')
    request = {"path": type(weights).__name__, **options}
    if text is None:
        return request, None
    request["config"] = text
    module = weights if isinstance(weights, torch.nn.Module) else torch.nn.Module()
    source = find_source(module, shapes, config=text, scheme=options.get("scheme") or "hf", set=None, like=options.get("like", ""))
    return request, source


def _uninitialised(t: Dict[str, Any]) -> Optional[str]:
    """Whether a tensor looks like memory that was never written: in words."""
    wrong = t.get("nans", 0) + t.get("infs", 0)  # not in the count
    if not t.get("analysed") or t["count"] + wrong == 0:
        return None
    if wrong > 0:
        return f"{wrong} of {t['count'] + wrong} numbers are not finite"
    if 100 * t["subnormals"] > t["count"] and t["dtype"] in ("F32", "BF16", "F64"):
        return f"{t['subnormals']} of {t['count']} numbers are subnormal"
    scale = t.get("expected_std") or 1.0
    largest = max(abs(t["min"]), abs(t["max"]))
    if "expected" in t and largest > 1e3 * max(scale, 1.0):
        return f"numbers up to {largest:.3g} where {t['expected']} is expected"
    return None


def _is_zero(t: Dict[str, Any]) -> bool:
    return bool(t.get("analysed") and t["count"] and t["zeros"] == t["count"])


def _fresh_pages(tensors: List[Dict[str, Any]]) -> Dict[str, str]:
    """Memory that was never written is often 0. One matrix of zeros may be meant; most of them, or a gain, not."""
    matrices = [t for t in tensors if len(t["shape"]) >= 2 and t["count"] >= 64]
    gains = [t for t in tensors if _is_zero(t) and str(t.get("expected", "")).startswith("constant") and t["expected"] != "constant 0"]
    if not gains and 2 * sum(_is_zero(t) for t in matrices) <= len(matrices):
        return {}
    return {t["name"]: f"every number is 0 where {t.get('expected', 'something else')} is expected" for t in [*gains, *matrices]
            if _is_zero(t) and t.get("expected") != "constant 0"}


def _explained(finding: Dict[str, Any], never: Mapping[str, str]) -> bool:
    """Whether a finding only says in another way that tensors were never written."""
    if never and finding["where"] == "model" and finding["id"] in ("one-stream", "copied-tensor"):
        return True  # "and more of this kind"
    patterns = [p.strip() for p in re.split(r",| and ", finding["where"])]
    return any(fnmatch.fnmatchcase(name, p) for p in patterns for name in never)


def _never_written(tensors: List[Dict[str, Any]]) -> Dict[str, str]:
    return {**{t["name"]: words for t in tensors for words in [_uninitialised(t)] if words}, **_fresh_pages(tensors)}


def _memory_findings(found: Dict[str, str]) -> List[Finding]:
    if not found:
        return []
    first = next(iter(found))
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return [Finding("uninitialised", "error", ", ".join(list(found)[:3]) + (", ..." if len(found) > 3 else ""),
                    f'"{first}"{more} look like memory that was never written: {found[first]}', _UNINITIALISED)]


def _as_json(f: Finding) -> Dict[str, Any]:
    return {"id": f.id, "severity": f.severity, "where": f.where, "evidence": f.evidence, "remedy": f.remedy}


def _held(target: Any, wholes: Mapping[str, Shape]) -> Optional[Tuple[torch.Tensor, Dict[str, Any]]]:
    """Memory of a tensor and its shape; of a box of one also where it begins. A stretch of a matrix has its complete rows; None: it has none."""
    whole = wholes[target.tensor]
    if isinstance(target, Target):
        return target.memory, {"shape": list(target.size), **({} if target.size == whole else {"whole": list(whole), "at": list(target.offset)})}
    row = math.prod(whole[1:])
    first, last = -(-target.first // row), (target.first + target.memory.numel()) // row
    if last <= first:
        return None
    memory = target.memory[first * row - target.first:last * row - target.first]
    size = [last - first, *whole[1:]]
    return memory, {"shape": size, **({} if size == list(whole) else {"whole": list(whole), "at": [first, *(0 for _ in whole[1:])]})}


def audit(weights: Weights, config: Any = None, scheme: Optional[str] = None, like: str = "", ranks: bool = True, consequences: bool = True,
          **options: Any) -> Audit:
    """What is wrong with the weights of a module or of a state_dict: stepzero.audit/1, nothing written, nothing copied that lies in this machine's memory.

    The model is that of `config`, else of module.config; without one names and shapes must do. `scheme` is what the weights are held against; without
    it the one they follow. `consequences=False` leaves out the prediction of loss and growth from the weights' own moments. Where torch.distributed runs, shards and replicas are compared, too: every process must call it then (`ranks=False`: not).

    >>> import torch, stepzero.torch
    >>> found = stepzero.torch.audit({"lm_head.weight": torch.zeros(50, 64), "model.norm.weight": torch.ones(64)})
    >>> len(found.tensors)
    2
    """
    threads, progress = int(options.pop("threads", 0) or 0), options.pop("progress", None)
    asked = {k: v for k, v in {"scheme": scheme, "like": like, **options}.items() if v}
    parts = _parts(weights)
    refuse_meta(parts)
    shapes = {p.name: p.whole for p in parts}
    request, source = _request(weights, shapes, config, asked)
    whole = all(p.complete for p in parts)
    bound = bind(shapes, source.tensors if source else [], strict=False)
    wholes = {**{b.tensor: b.shape[b.drop:] for blocks in bound.values() for b in blocks}, **{t.name: t.shape for t in (source.tensors if source else [])}}
    tensors, memories = [], []
    for t in targets_of(parts, bound):
        held = _held(t, wholes)
        if held is None or held[0].numel() == 0:
            continue
        memory = held[0] if on_host(held[0]) and held[0].is_contiguous() else held[0].cpu().contiguous()
        tensors.append({"name": t.tensor, **held[1], "dtype": _DTYPES[memory.dtype]})
        memories.append(memory)
    request["consequences"] = consequences and whole
    texts = _lib.call("audit_memory", {**request, "tensors": tensors}, data=[m.data_ptr() for m in memories], threads=threads, progress=progress)
    raw = texts.json()
    if not whole:  # what is not here is elsewhere
        raw["findings"] = [f for f in raw["findings"] if f["id"] != "missing-tensor"]
    never = _never_written(raw["tensors"])
    more = _memory_findings(never)
    if isinstance(weights, torch.nn.Module):
        own = json.loads(request["config"]) if str(request.get("config", "")).lstrip().startswith("{") else {}
        more += buffer_findings(weights, own)
        more += compare_ranks(weights) if ranks else []
    raw["findings"] = [_as_json(f) for f in more] + [f for f in raw["findings"] if not _explained(f, never)]
    return Audit(raw, texts["html"])
