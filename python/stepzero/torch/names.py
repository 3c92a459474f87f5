"""Which numbers of which tensor of a checkpoint a live parameter holds.

Wrappers prepend words to names, headless models lack a prefix, and some classes pack the matrices of all experts into one parameter. A weight's
numbers depend on its name in the checkpoint, so all of this must lead to the same names and the same element indices."""
import re
from dataclasses import dataclass
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..errors import StepzeroError

Shape = Tuple[int, ...]

# What torch.compile, DistributedDataParallel, FSDP and activation checkpointing put into names.
_WRAPPERS = ("_orig_mod", "module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_fpw_module", "_forward_module")

# Names that classes gave to the same thing at different times: what the checkpoint says, and what a live module may say.
_ALIASES = ((".block_sparse_moe.", ".mlp."), (".LayerNorm.weight", ".LayerNorm.gamma"), (".LayerNorm.bias", ".LayerNorm.beta"))


class Tensor(NamedTuple):
    """A tensor of a checkpoint under a scheme."""

    name: str
    shape: Shape
    role: str
    layer: int
    std: float


@dataclass(frozen=True)
class Block:
    """A box of a live parameter, and the tensor it is all of."""

    tensor: str
    start: Shape  # in the live parameter
    shape: Shape  # likewise
    drop: int = 0  # leading dimensions, of size 1, that the tensor does not have


def clean(name: str) -> str:
    """A name without the words of wrappers.

    >>> clean("_orig_mod.module.transformer.h.0._checkpoint_wrapped_module.ln_1.weight")
    'transformer.h.0.ln_1.weight'
    """
    return ".".join(part for i, part in enumerate(name.split(".")) if part not in _WRAPPERS or (part == "module" and i > 1))


def layer_of(name: str) -> int:
    """The first number in a name; -1: none.

    >>> layer_of("model.layers.12.mlp.experts.3.w1.weight"), layer_of("lm_head.weight")
    (12, -1)
    """
    for part in name.split("."):
        if part.isdigit():
            return int(part)
    return -1


def _spellings(name: str, heads: Sequence[str]) -> List[str]:
    """The names a tensor may have in the checkpoint, the likeliest first."""
    names = [name]
    for theirs, live in _ALIASES:
        names += [n.replace(live, theirs) for n in list(names) if live in n]
        names += [n.replace(theirs, live) for n in list(names) if theirs in n]
    return names + [head + "." + n for head in heads for n in names] + [n.split(".", 1)[1] for n in names if "." in n]


_EXPERT = re.compile(r"experts\.(\d+)\.")


def _packed(name: str, shape: Shape, tensors: Sequence[Tensor]) -> Optional[List[Block]]:
    """experts.gate_up_proj, (experts, 2 ffn, width), and experts.down_proj, (experts, width, ffn), as transformers 5 keeps them."""
    what = re.search(r"experts\.(gate_up_proj|down_proj|gate_proj|up_proj)(\.weight)?$", name)
    if what is None or len(shape) != 3:
        return None
    roles = {"gate_up_proj": ("ffn_gate", "ffn_in"), "down_proj": ("ffn_out",), "gate_proj": ("ffn_gate",), "up_proj": ("ffn_in",)}[what.group(1)]
    layer = layer_of(name)
    blocks: List[Block] = []
    for t in tensors:
        expert = _EXPERT.search(t.name)
        if expert is None or t.role not in roles or layer_of(t.name) != layer or len(t.shape) != 2:
            continue
        rows, cols = t.shape
        blocks.append(Block(t.name, (int(expert.group(1)), rows * roles.index(t.role), 0), (1, rows, cols), 1))
    if not blocks:
        return None
    numbers = sum(b.shape[1] * b.shape[2] for b in blocks)
    reach = tuple(max(b.start[d] + b.shape[d] for b in blocks) for d in range(3))
    if numbers != shape[0] * shape[1] * shape[2] or reach != shape:
        raise StepzeroError(f'"{name}" is {list(shape)}, and its {len(blocks)} matrices together are {list(reach)}',
                            "experts are expected as (experts, out, in), gate above up")
    return blocks


def bind(live: Mapping[str, Shape], tensors: Sequence[Tensor], names: Optional[Mapping[str, str]] = None, strict: bool = True) -> Dict[str, List[Block]]:
    """For each live parameter its blocks. `names` says for some what they are called in the checkpoint. Where `strict` is off, what the model does not
    know keeps its name, and what has another shape keeps that.

    >>> bind({"wte.weight": (9, 4)}, [Tensor("transformer.wte.weight", (9, 4), "token_embedding", -1, 0.02)])
    {'wte.weight': [Block(tensor='transformer.wte.weight', start=(0, 0), shape=(9, 4), drop=0)]}
    """
    by_name = {t.name: t for t in tensors}
    heads = list(dict.fromkeys(t.name.split(".", 1)[0] for t in tensors if "." in t.name))
    bound: Dict[str, List[Block]] = {}
    unknown: List[str] = []
    for name, shape in live.items():
        told = (names or {}).get(name)
        found = by_name.get(told) if told is not None else next((by_name[n] for n in _spellings(name, heads) if n in by_name), None)
        blocks = None if found else _packed(name, shape, tensors)
        if found is not None:
            if found.shape != shape and strict:
                raise StepzeroError(f'"{name}" is {list(shape)}, and the model has "{found.name}" as {list(found.shape)}',
                                    "is the module of this configuration?")
            blocks = [Block(found.name, (0,) * len(shape), shape)]
        if blocks is None and not strict:
            blocks = [Block(name, (0,) * len(shape), shape)]
        if blocks is None:
            unknown.append(name)
        else:
            bound[name] = blocks
    if unknown:
        some = ", ".join(f'"{n}"' for n in unknown[:3]) + (f" and {len(unknown) - 3} more" if len(unknown) > 3 else "")
        hint = 'names={"live name": "name in the checkpoint"} tells, or roles={"pattern": "role"} where there is no such model'
        if any(n.endswith("lm_head.weight") for n in unknown):
            hint = "the model's head is tied to its embeddings, and this one is not: module.tie_weights()"
        raise StepzeroError(f"the model has no {some}", hint)
    return bound
