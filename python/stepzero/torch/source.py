"""What a module is: its configuration, or the roles of its matrices. From this the library knows names, shapes and laws."""
import fnmatch
import json
import os
import warnings
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Tuple

import torch

from .. import _lib
from ..face import Model
from ..errors import StepzeroError
from .names import Shape, Tensor, clean

ROLES = ("token_embedding", "position_embedding", "query", "key", "value", "query_key_value", "attention_out", "ffn_in", "ffn_gate", "ffn_out",
         "head", "projection", "router", "gain", "bias")


@dataclass(frozen=True)
class Source:
    """A model, or tensors with roles, as a request says it; and the tensors it has under a scheme."""

    request: Dict[str, Any]
    tensors: List[Tensor]
    changes: Tuple[str, ...] = ()

    @property
    def known(self) -> bool:
        return "model" in self.request

    def model(self) -> Model:
        r = self.request
        return Model(r["model"], dict(pair.split("=", 1) for pair in r.get("set", [])), r["scheme"], r.get("like", ""))


def inner(module: torch.nn.Module) -> torch.nn.Module:
    """The module inside wrappers: the first that has a configuration, or is no wrapper."""
    while not hasattr(module, "config"):
        for name in ("_orig_mod", "module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"):
            child = getattr(module, name, None)
            if isinstance(child, torch.nn.Module):
                module = child
                break
        else:
            break
    return module


def config_text(config: Any) -> Optional[str]:
    """A configuration as the library reads it: a name, a path, or JSON. None: it is not one that names its family."""
    if isinstance(config, (str, os.PathLike)):
        return os.fspath(config)
    data = config.to_dict() if hasattr(config, "to_dict") else config
    if not isinstance(data, Mapping) or not ("model_type" in data or "schema" in data):
        return None
    return json.dumps(dict(data), default=str)


def _roles(shapes: Mapping[str, Shape], roles: Mapping[str, str]) -> List[Dict[str, Any]]:
    """Each tensor with the role of the first pattern that fits its name."""
    wrong = [role for role in roles.values() if role not in ROLES]
    if wrong:
        raise StepzeroError(f'"{wrong[0]}" is no role', "one of " + ", ".join(ROLES))
    used = set()
    entries = []
    for name, shape in shapes.items():
        entry: Dict[str, Any] = {"name": name, "shape": list(shape)}
        for pattern, role in roles.items():
            if fnmatch.fnmatchcase(name, pattern):
                entry["role"] = role
                used.add(pattern)
                break
        entries.append(entry)
    idle = [p for p in roles if p not in used]
    if idle:
        raise StepzeroError(f'roles: no parameter is called "{idle[0]}"', "parameters are called like " + ", ".join(list(shapes)[:3]))
    return entries


def find_source(module: torch.nn.Module, shapes: Mapping[str, Shape], config: Any = None, roles: Optional[Mapping[str, str]] = None, scheme: str = "hf",
                set: Optional[Mapping[str, Any]] = None, like: str = "") -> Source:
    """By the configuration given, else that of the module, else by roles: those given, then what names say."""
    request: Dict[str, Any] = {"scheme": scheme}
    if isinstance(config, Model):
        request = {**config._request({}), "scheme": scheme}
    else:
        given = config if config is not None else None if roles else getattr(inner(module), "config", None)
        text = config_text(given) if given is not None else None
        if config is not None and text is None:
            raise StepzeroError(f"config={type(config).__name__} does not say its model_type", 'a preset such as "gpt2", a path, a dict or an object with to_dict()')
        if text is not None:
            request["model"] = text
            request["set"] = [f"{k}={str(v).lower() if isinstance(v, bool) else v}" for k, v in (set or {}).items()]
            if like:
                request["like"] = like
        else:
            request["tensors"] = _roles(shapes, roles or {})
    data = _lib.call("tensors", request).json()
    tensors = [Tensor(t["name"], tuple(t["shape"]), t["role"], t["layer"], t["std"]) for t in data["tensors"]]
    source = Source(request, tensors, tuple(data.get("changes", ())))
    if not source.known:
        missing = [n for n in shapes if n not in {t.name for t in tensors}]
        if missing:
            raise StepzeroError(f'what "{missing[0]}" is cannot be told from its name' + (f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""),
                                'config= names the model, or roles={"*.c_proj.weight": "attention_out", ...} says it; roles are ' + ", ".join(ROLES))
    return source


def warn_of_changes(source: Source, scheme: str) -> None:
    """A scheme may ask for another forward pass than the module's own."""
    if source.changes:
        warnings.warn(f"scheme {scheme} also changes the forward pass ({', '.join(source.changes)}): the weights are drawn for that, the module stays as it is",
                      stacklevel=3)


def shapes_of(module: torch.nn.Module) -> Dict[str, Shape]:
    """Names without wrappers, and whole shapes."""
    return {clean(name): tuple(p.shape) for name, p in module.named_parameters()}
