"""Memory of tensors: filled where it lies, or through pieces in the host's memory where the library cannot reach it."""
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import torch

from .. import _lib
from ..errors import StepzeroError

DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}
PIECE = 1 << 24  # numbers that cross to another device at a time


def on_host(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu"


def host_buffer(count: int, like: torch.Tensor) -> torch.Tensor:
    """Memory that a device can copy from: pinned for CUDA."""
    dtype = like.dtype if like.dtype in DTYPES else torch.float32
    return torch.empty(count, dtype=dtype, pin_memory=like.device.type == "cuda")


@dataclass
class Target:
    """A box of a tensor and the memory it goes to."""

    tensor: str
    memory: torch.Tensor
    offset: Tuple[int, ...]
    size: Tuple[int, ...]

    def piece(self) -> Dict[str, Any]:
        if not self.size:  # a single number has no box
            return {"tensor": self.tensor, "first": 0, "count": 1}
        return {"tensor": self.tensor, "offset": list(self.offset), "size": list(self.size)}

    def halves(self) -> Iterator["Target"]:
        d = next(i for i, n in enumerate(self.size) if n > 1)
        middle = self.size[d] // 2
        packed = self.memory.dim() - len(self.size)  # leading dimensions of size 1
        for begin, count in ((0, middle), (middle, self.size[d] - middle)):
            offset, size = list(self.offset), list(self.size)
            offset[d] += begin
            size[d] = count
            yield Target(self.tensor, self.memory.narrow(d + packed, begin, count), tuple(offset), tuple(size))


@dataclass
class Run:
    """A stretch of a tensor's numbers and the row of memory it goes to."""

    tensor: str
    memory: torch.Tensor
    first: int

    def piece(self) -> Dict[str, Any]:
        return {"tensor": self.tensor, "first": self.first, "count": self.memory.numel()}

    def halves(self) -> Iterator["Run"]:
        middle = self.memory.numel() // 2
        yield Run(self.tensor, self.memory[:middle], self.first)
        yield Run(self.tensor, self.memory[middle:], self.first + middle)


def _small(target: Any) -> Iterator[Any]:
    if target.memory.numel() <= PIECE:
        yield target
    else:
        for half in target.halves():
            yield from _small(half)


def refuse_meta(parts: Sequence[Any]) -> None:
    meta = [p.name for p in parts if p.memory.is_meta]
    if meta:
        raise StepzeroError(f'{len(meta)} parameters are on the meta device and hold no numbers, such as "{meta[0]}"',
                            'module.to_empty(device="cpu") gives them memory, then tie_weights() and init_(module); buffers that no checkpoint holds must be made anew')


def _check(targets: List[Any]) -> None:
    for t in targets:
        if t.memory.dtype not in DTYPES and t.memory.dtype != torch.float64:
            raise StepzeroError(f'"{t.tensor}" is {t.memory.dtype}', "init_ writes float32, bfloat16, float16 and float64: draw first, quantise then")


@dataclass
class Filler:
    """Draws targets of one model, as few calls as possible."""

    request: Dict[str, Any]
    options: Dict[str, Any] = field(default_factory=dict)

    def _draw(self, targets: List[Any], memories: List[torch.Tensor]) -> None:
        pieces = [{**t.piece(), "dtype": DTYPES[m.dtype]} for t, m in zip(targets, memories)]
        _lib.call("fill", {**self.request, "pieces": pieces}, data=[m.data_ptr() for m in memories], **self.options)

    def fill(self, targets: List[Any]) -> None:
        targets = [t for t in targets if t.memory.numel() > 0]
        _check(targets)
        direct = [t for t in targets if on_host(t.memory) and t.memory.is_contiguous() and t.memory.dtype in DTYPES]
        chosen = {id(t) for t in direct}
        with torch.no_grad():
            if direct:
                self._draw(direct, [t.memory for t in direct])
            for t in (t for t in targets if id(t) not in chosen):
                for part in _small(t):
                    buffer = host_buffer(part.memory.numel(), part.memory)
                    self._draw([part], [buffer])
                    part.memory.copy_(buffer.view(part.memory.shape))
            for t in targets:
                if t.memory.is_contiguous():
                    t.memory.view(-1)[:0].zero_()  # tells autograd that the numbers are others
