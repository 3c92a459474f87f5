"""Buffers that no checkpoint holds: lost when a module gets its memory by to_empty(), without an exception."""
from typing import Any, Iterator, List, Mapping, Optional

import torch

from ..results import Finding
from .names import clean

_REMEDY = "buffers that are not saved must be made anew after to_empty(): build the module on a real device, or call what its __init__ computes them with"


def _bases(config: Any) -> List[float]:
    """Every base of rotary frequencies that a configuration names."""
    found: List[float] = []
    if isinstance(config, Mapping):
        for key, value in config.items():
            if key in ("rope_theta", "rotary_emb_base", "rope_local_base_freq") and isinstance(value, (int, float)):
                found.append(float(value))
            found += _bases(value)
    return found


def _scaled(config: Any) -> bool:
    for key in ("rope_scaling", "rope_parameters"):
        scaling = config.get(key) if isinstance(config, Mapping) else None
        if isinstance(scaling, Mapping) and str(scaling.get("rope_type", scaling.get("type", "default"))) != "default":
            return True
    return False


def _wrong_frequencies(x: torch.Tensor, config: Any) -> Optional[str]:
    """Rotary frequencies: base^(-2i/d). Scaled ones fall all the same."""
    if x.dim() != 1 or len(x) < 2:
        return None
    x = x.double()
    if not bool(torch.isfinite(x).all()) or bool((x <= 0).any()) or bool((x[1:] > x[:-1]).any()):
        return f"holds {_some(x)}, and frequencies fall from 1"
    if _scaled(config):
        return None
    i = torch.arange(len(x), dtype=torch.float64) / len(x)
    bases = _bases(config) or [float((x[1] / x[0]) ** -len(x))]
    if all(bool(((x * base**i - 1).abs() > 0.02).any()) for base in bases):
        return f"holds {_some(x)}, and {bases[0]:g}^(-2i/d) begins with {', '.join(f'{bases[0] ** -(k / len(x)):.4g}' for k in range(min(3, len(x))))}"
    return None


def _some(x: torch.Tensor) -> str:
    return ", ".join(f"{float(v):.4g}" for v in x.flatten()[:3]) + (", ..." if x.numel() > 3 else "")


def _wrong(name: str, x: torch.Tensor, config: Any) -> Optional[str]:
    last = name.rsplit(".", 1)[-1]
    if x.is_meta:
        return "is on the meta device: it has no numbers"
    x = x.detach().cpu()
    if last in ("inv_freq", "original_inv_freq"):
        return _wrong_frequencies(x, config)
    if last == "position_ids":
        return None if torch.equal(x.flatten().long(), torch.arange(x.numel())) else f"holds {_some(x)}, and positions count from 0"
    if last == "bias" and x.dim() == 4 and x.shape[-1] == x.shape[-2] and not x.is_floating_point():
        square = x[0, 0].bool()
        return None if torch.equal(square, torch.ones_like(square).tril()) else "is not the causal mask"
    if last == "running_var":
        return None if bool((x > 0).all()) and bool(torch.isfinite(x).all()) else f"holds {_some(x)}, and is a variance"
    if x.is_floating_point() and bool(torch.isnan(x).any()):
        return f"holds NaN among {x.numel()} numbers"
    if x.is_floating_point() and last not in ("masked_bias",) and bool((x[torch.isfinite(x)].abs() > 1e9).any()):
        large = float(x[torch.isfinite(x)].abs().max())
        return None if large >= 0.99 * float(torch.finfo(x.dtype).max) else f"holds {large:.3g}, as memory does that was never written"
    return None


def buffer_findings(module: torch.nn.Module, config: Any) -> Iterator[Finding]:
    for name, x in module.named_buffers():
        wrong = _wrong(name, x, config)
        if wrong is not None:
            yield Finding("lost-buffer", "error", clean(name), f'"{clean(name)}" {wrong}', _REMEDY)
