"""What the torch tests share: bits of tensors, bits of files, fakes of what this torch does not have."""
import json
import pathlib
import struct
from types import SimpleNamespace

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def bits(t):
    t = t.detach().contiguous()
    return t.view({4: torch.int32, 2: torch.int16, 8: torch.int64}[t.element_size()]).numpy().tobytes()


def file_bits(path):
    """Name -> bytes of a safetensors file."""
    data = pathlib.Path(path).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    return {name: data[8 + length + e["data_offsets"][0]:8 + length + e["data_offsets"][1]] for name, e in header.items()}


class Shard:
    def __init__(self, dim):
        self.dim = dim


class StridedShard(Shard):
    def __init__(self, dim, split_factor):
        super().__init__(dim)
        self.split_factor = split_factor


class Replicate:
    pass


class Mesh:
    def __init__(self, shape, coordinate):
        self.shape, self._coordinate = shape, coordinate

    def get_coordinate(self):
        return self._coordinate


def chunk(n, parts, i):
    """What torch.chunk gives to the i-th of `parts`: begin, end."""
    pieces = torch.arange(n).chunk(parts)
    return (int(pieces[i][0]), int(pieces[i][-1]) + 1) if i < len(pieces) else (n, n)


def shard_of(whole, placements, shape, coordinate):
    """A piece as torch.distributed.tensor cuts it: by torch.chunk, one dimension of the mesh after the other; strided shards after those behind them."""
    order = [i for i, p in enumerate(placements) if not hasattr(p, "split_factor")] + [i for i, p in enumerate(placements) if hasattr(p, "split_factor")]
    for i in order:
        if isinstance(placements[i], Shard):
            begin, end = chunk(whole.shape[placements[i].dim], shape[i], coordinate[i])
            whole = whole.narrow(placements[i].dim, begin, end - begin)
    return whole


def distributed(module, placements_of, shape, coordinate):
    """The module as one place of a mesh holds it: parameters that look like DTensors."""
    made = {}  # a tied parameter stays one
    for child in list(module.modules()):
        for name, p in list(child._parameters.items()):
            if p is None:
                continue
            if id(p) not in made:
                placements = placements_of(tuple(p.shape))
                local = torch.full_like(shard_of(p.detach(), placements, shape, coordinate), 7.0).contiguous()
                made[id(p)] = p, FakeDTensor(tuple(p.shape), local, placements, Mesh(shape, coordinate))
            child._parameters[name] = made[id(p)][1]
    return module


class FakeDTensor:
    """The attributes of torch.distributed.tensor.DTensor that say what it is."""

    def __init__(self, shape, local, placements, mesh):
        self.shape, self._local_tensor, self.placements, self.device_mesh, self.requires_grad, self.dtype = shape, local, placements, mesh, True, local.dtype

    def numel(self):
        return self._local_tensor.numel()


def flat(module, ranks, rank, modern):
    """FSDP's first form: all parameters in one row, padded, and this rank's part of it. With the attributes of torch 1.13 or of 2."""
    names = [n for n, _ in module.named_parameters()]
    shapes = [p.shape for p in module.parameters()]
    numels = [p.numel() for p in module.parameters()]
    total = sum(numels)
    length = -(-total // ranks)
    begin, end = rank * length, (rank + 1) * length
    local = torch.full((length,), 7.0)
    row = SimpleNamespace(_shapes=shapes, _numels=numels, data=local, _local_shard=local)
    infos, at = [], 0
    for n in numels:
        low, high = max(at, begin), min(at + n, end)
        infos.append((low < high, low - begin, high - low, low - at, high - at - 1))
        at += n
    if modern:
        row._fqns = names
        keys = ("in_shard", "offset_in_shard", "numel_in_shard", "intra_param_start_idx", "intra_param_end_idx")
        row._shard_param_infos = [SimpleNamespace(**dict(zip(keys, i if i[0] else (False, None, None, None, None)))) for i in infos]
    else:
        owners = [(n.rsplit(".", 1)[-1], None, n.rsplit(".", 1)[0] if "." in n else "") for n in names]
        inside = [i for i, info in enumerate(infos) if info[0]]
        row._param_infos, row._shard_indices = owners, (inside[0], inside[-1]) if inside else (0, -1)
        row._shard_param_offsets = [(infos[i][3], infos[i][4]) for i in inside]
    wrapper = torch.nn.Module()
    wrapper.config = module.config
    wrapper._handle = SimpleNamespace(flat_param=row)
    return wrapper, local
