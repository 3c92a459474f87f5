"""init_: weights drawn in place, with the bits that `stepzero init` writes, whatever the module is wrapped in and however it is sharded."""
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

import torch

from .memory import Filler, Run, Target, refuse_meta
from .names import Block, bind
from .shards import Box, Stretch, local_parts
from .source import find_source, warn_of_changes


def _boxes(part: Box, blocks: Sequence[Block]) -> Iterator[Target]:
    """Where the local box meets each of the blocks."""
    for b in blocks:
        low = [max(o, s) for o, s in zip(part.offset, b.start)]
        high = [min(o + n, s + m) for o, n, s, m in zip(part.offset, part.size, b.start, b.shape)]
        if any(h <= l for l, h in zip(low, high)):
            continue
        memory = part.memory.detach()
        for d, (l, h) in enumerate(zip(low, high)):
            memory = memory.narrow(d, l - part.offset[d], h - l)
        offset = [l - s for l, s in zip(low, b.start)]
        size = [h - l for l, h in zip(low, high)]
        yield Target(b.tensor, memory, tuple(offset[b.drop:]), tuple(size[b.drop:]))


def _runs(part: Stretch, blocks: Sequence[Block]) -> Iterator[Run]:
    """The same of a stretch: a block reaches over all but the first dimensions, so that its numbers are neighbours."""
    strides = [1] * len(part.whole)
    for d in range(len(part.whole) - 2, -1, -1):
        strides[d] = strides[d + 1] * part.whole[d + 1]
    for b in blocks:
        begin = sum(s * stride for s, stride in zip(b.start, strides))
        count = 1
        for n in b.shape:
            count *= n
        low, high = max(begin, part.first), min(begin + count, part.first + part.memory.numel())
        if low < high:
            yield Run(b.tensor, part.memory.detach()[low - part.first:high - part.first], low - begin)


def targets_of(parts: Sequence[Any], bound: Mapping[str, Sequence[Block]]) -> List[Any]:
    out: List[Any] = []
    for part in parts:
        out += _boxes(part, bound[part.name]) if isinstance(part, Box) else _runs(part, bound[part.name])
    return out


def init_(module: torch.nn.Module, scheme: str = "hf", seed: int = 0, config: Any = None, roles: Optional[Mapping[str, str]] = None,
          names: Optional[Mapping[str, str]] = None, set: Optional[Mapping[str, Any]] = None, like: str = "", **options: Any) -> torch.nn.Module:
    """Draws every parameter in place and returns the module.

    What the parameters are is read from `config` (a preset, a path, a dict, or an object with to_dict()), else from module.config; without one from
    `roles`, patterns of names, and from the names themselves. `names` maps live names to those of the checkpoint where they differ in a way of their
    own. Sharded parameters get their part of the whole, without a word to the other processes. Buffers are left alone.

    >>> import torch, stepzero.torch
    >>> layer = torch.nn.ModuleDict({"wte": torch.nn.Embedding(50, 8), "lm_head": torch.nn.Linear(8, 50, bias=False)})
    >>> _ = stepzero.torch.init_(layer, scheme="xavier-normal", seed=7)
    >>> bool(0.15 < layer["lm_head"].weight.std() < 0.25)
    True
    """
    parts = list(local_parts(module))
    refuse_meta(parts)
    shapes: Dict[str, Any] = {part.name: part.whole for part in parts}
    source = find_source(module, shapes, config, roles, scheme, set, like)
    warn_of_changes(source, scheme)
    # a scheme that changes the model may have no law for some of the module's own parameters: these are drawn as the family does
    own = find_source(module, shapes, config, roles, "hf", set, like) if source.changes else source
    known = {t.name for t in source.tensors}
    targets = targets_of(parts, bind(shapes, [*source.tensors, *(t for t in own.tensors if t.name not in known)], names))
    Filler({**source.request, "seed": seed}, options).fill([t for t in targets if t.tensor in known])
    Filler({**own.request, "seed": seed}, options).fill([t for t in targets if t.tensor not in known])
    return module
