"""Where a parameter's local numbers lie in the whole tensor: read off DTensor and FSDP, without asking any other process."""
from dataclasses import dataclass
from typing import Any, Iterator, List, Sequence, Set, Tuple

import torch

from ..errors import StepzeroError
from .names import Shape, clean


@dataclass(frozen=True)
class Box:
    """Local memory of the shape `size` that is a box of a tensor of the shape `whole`."""

    name: str
    memory: torch.Tensor
    whole: Shape
    offset: Shape
    size: Shape

    @property
    def complete(self) -> bool:
        return self.size == self.whole


@dataclass(frozen=True)
class Stretch:
    """Local memory, one row, that is a stretch of a tensor's numbers counted row by row."""

    name: str
    memory: torch.Tensor
    whole: Shape
    first: int

    @property
    def complete(self) -> bool:
        count = 1
        for extent in self.whole:
            count *= extent
        return self.first == 0 and self.memory.numel() == count


def _is_dtensor(p: Any) -> bool:
    return hasattr(p, "placements") and hasattr(p, "device_mesh")


def _sharded_dim(placement: Any, rank: int) -> int:
    dim = int(placement.dim)
    return dim + rank if dim < 0 else dim


def _mesh_order(placements: Sequence[Any]) -> List[int]:
    """The dimensions of the mesh in the order in which they cut. A strided shard (FSDP over tensor parallelism) cuts what the later ones left."""
    plain = [i for i, p in enumerate(placements) if int(getattr(p, "split_factor", 1)) <= 1]
    strided = [i for i, p in enumerate(placements) if int(getattr(p, "split_factor", 1)) > 1]
    return plain + strided[::-1]


def rectangle(shape: Shape, placements: Sequence[Any], sizes: Sequence[int], coordinate: Sequence[int]) -> Tuple[Shape, Shape]:
    """Offset and size of what lies at one place of the mesh: torch.chunk along each sharded dimension.

    >>> class Shard:
    ...     dim = 0
    >>> rectangle((10, 4), [Shard()], [3], [2])
    ((8, 0), (2, 4))
    """
    offset, size = [0] * len(shape), list(shape)
    for i in _mesh_order(placements):
        placement = placements[i]
        if hasattr(placement, "dim"):
            d = _sharded_dim(placement, len(shape))
            chunk = -(-size[d] // sizes[i])
            begin = min(size[d], chunk * coordinate[i])
            size[d] = min(size[d], begin + chunk) - begin
            offset[d] += begin
        elif type(placement).__name__.lower().lstrip("_").startswith("partial"):
            raise StepzeroError("a parameter is a partial sum: no process holds its numbers", "redistribute it to Replicate() or Shard(dim) first")
    return tuple(offset), tuple(size)


def _of_dtensor(name: str, p: Any) -> Iterator[Box]:
    coordinate = p.device_mesh.get_coordinate()
    if coordinate is None:  # this process is not in the mesh
        return
    mesh = p.device_mesh
    sizes = [int(n) for n in (mesh.shape if hasattr(mesh, "shape") else mesh.mesh.shape)]
    offset, size = rectangle(tuple(p.shape), p.placements, sizes, coordinate)
    memory = p._local_tensor if hasattr(p, "_local_tensor") else p.to_local()
    if tuple(memory.shape) != size:
        raise StepzeroError(f'"{name}": this process holds {list(memory.shape)}, and its placements {list(p.placements)} say {list(size)}',
                            "a sharding that is not torch.chunk's: gather it, or tell the authors")
    yield Box(name, memory, tuple(p.shape), offset, size)


def _flat_parameter(module: torch.nn.Module) -> Any:
    """FSDP's flat parameter of this module; None: it has none of its own."""
    for handle in [getattr(module, "_handle", None), *(getattr(module, "_handles", None) or [])]:
        flat = getattr(handle, "flat_param", None)
        if flat is not None:
            return flat
    flat = getattr(module, "flat_param", None)
    return flat if hasattr(flat, "_shapes") else None


def _flat_names(flat: Any) -> List[str]:
    if hasattr(flat, "_fqns"):
        return list(flat._fqns)
    return [(info[2] + "." if info[2] else "") + info[0] for info in flat._param_infos]  # (name, module, module's name)


def _of_flat(prefix: str, flat: Any) -> Iterator[Stretch]:
    """The stretches of parameters that lie in this process's shard of a flat parameter."""
    names = [clean(prefix + name) for name in _flat_names(flat)]
    shapes = [tuple(shape) for shape in flat._shapes]
    local = flat._local_shard if getattr(flat, "_local_shard", None) is not None else flat.data
    if hasattr(flat, "_shard_param_infos"):  # since 2.0
        for name, shape, info in zip(names, shapes, flat._shard_param_infos):
            if info.in_shard:
                yield Stretch(name, local[info.offset_in_shard:info.offset_in_shard + info.numel_in_shard], shape, int(info.intra_param_start_idx))
        return
    first, last = getattr(flat, "_shard_indices", (0, len(names) - 1))
    offsets = getattr(flat, "_shard_param_offsets", [(0, int(n) - 1) for n in flat._numels])
    at = 0
    for i, (begin, end) in zip(range(first, last + 1), offsets):
        count = end - begin + 1
        yield Stretch(names[i], local[at:at + count], shapes[i], int(begin))
        at += count


def local_parts(module: torch.nn.Module) -> Iterator[Any]:
    """What this process holds of every parameter: Box or Stretch."""
    seen: Set[str] = set()
    flats: Set[int] = set()
    for path, child in module.named_modules():
        flat = _flat_parameter(child)
        if flat is None or id(flat) in flats:
            continue
        flats.add(id(flat))
        for stretch in _of_flat(path + "." if path else "", flat):
            seen.add(stretch.name)
            yield stretch
        seen.update(clean((path + "." if path else "") + n) for n in _flat_names(flat))
    for name, p in module.named_parameters():
        own = clean(name)
        if own in seen or id(p) in flats:
            continue
        if _is_dtensor(p):
            yield from _of_dtensor(own, p)
        else:
            shape = tuple(p.shape)
            yield Box(own, p, shape, (0,) * len(shape), shape)
