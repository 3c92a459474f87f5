"""What processes hold beside each other: shards that are the same numbers, replicas that are not."""
import ctypes
import hashlib
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Sequence, Tuple

import torch

from ..results import Finding
from .shards import Box, local_parts


class Held(NamedTuple):
    """A piece of a parameter that a process holds."""

    name: str
    where: Tuple[Any, ...]  # of the whole: offset and size, or first number and count
    complete: bool
    constant: bool
    digest: str


def _digest(memory: torch.Tensor) -> str:
    memory = memory.detach().cpu().contiguous()
    size = memory.numel() * memory.element_size()
    return hashlib.blake2b((ctypes.c_char * size).from_address(memory.data_ptr()) if size else b"", digest_size=16).hexdigest()


def held(module: torch.nn.Module) -> List[Held]:
    out = []
    for part in local_parts(module):
        if part.memory.is_meta or part.memory.numel() == 0:
            continue
        where = (part.offset, part.size) if isinstance(part, Box) else (part.first, part.memory.numel())
        memory = part.memory.detach()
        out.append(Held(part.name, where, part.complete, bool(memory.min() == memory.max()), _digest(memory)))
    return out


def _names(found: Iterable[str]) -> str:
    names = sorted(set(found))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def compare(ranks: Sequence[Sequence[Held]]) -> Iterator[Finding]:
    """What processes told of themselves, the first being rank 0.

    >>> a, b = Held("w", ((0, 0), (2, 4)), False, False, "x"), Held("w", ((2, 0), (2, 4)), False, False, "x")
    >>> [f.id for f in compare([[a], [b]])]
    ['identical-shards']
    """
    same_place: Dict[Any, Dict[str, int]] = {}
    same_bits: Dict[str, Dict[Any, Held]] = {}
    for rank, pieces in enumerate(ranks):
        for piece in pieces:
            same_place.setdefault((piece.name, piece.where), {}).setdefault(piece.digest, rank)
            if not piece.constant:
                same_bits.setdefault(piece.digest, {}).setdefault((piece.name, piece.where), piece)
    differ = {name: digests for (name, _), digests in same_place.items() if len(digests) > 1}
    if differ:
        first = next(iter(differ))
        yield Finding("replicas-differ", "error", _names(differ), f"ranks {' and '.join(str(r) for r in sorted(differ[first].values())[:2])} hold other numbers of "
                      f'"{first}" ({len(differ)} parameters)', "draw with one seed on every rank, or broadcast from rank 0 before training")
    copies = [list(places.values()) for places in same_bits.values() if len(places) > 1 and not all(p.complete for p in places.values())]
    if copies:
        yield Finding("identical-shards", "error", _names(p.name for c in copies for p in c), f'{len(copies)} times shards of different places hold the same numbers, as '
                      f'"{copies[0][0].name}" at {copies[0][0].where[0]} and "{copies[0][1].name}" at {copies[0][1].where[0]}',
                      "every rank drew from the same state of its generator: init_(module, seed=...) draws each number by its place")


def world() -> int:
    distributed = getattr(torch, "distributed", None)
    return int(distributed.get_world_size()) if distributed is not None and distributed.is_available() and distributed.is_initialized() else 1


def compare_ranks(module: torch.nn.Module) -> List[Finding]:
    """Gathers a few bytes a parameter from every process; all of them must call it."""
    if world() == 1 and all(part.complete for part in local_parts(module)):
        return []  # nothing to compare with
    mine = held(module)
    if world() == 1:
        return list(compare([mine]))
    everyone: List[Any] = [None] * world()
    gather: Any = torch.distributed.all_gather_object
    gather(everyone, mine)
    return list(compare(everyone))
