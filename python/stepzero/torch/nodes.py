"""Where the nodes of a model's graph can be seen in a live module: what a child gives, what it is given, and what follows from these."""
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

import torch

from ..errors import StepzeroError
from .names import Block, bind, clean
from .source import Source

Node = Dict[str, Any]
_GIVES = ("linear", "layer_norm", "rms_norm", "token_embedding")  # ops whose module's output is the node


@dataclass(frozen=True)
class Seen:
    """A node in a child's output or input; of a fused projection some of the channels."""

    node: str
    channels: int
    first: int = 0
    of: int = 0  # channels of the whole tensor; 0: these
    side: str = ""  # whose tokens its rows are: "encoder" where an encoder's


@dataclass
class Plan:
    outputs: Dict[str, List[Seen]] = field(default_factory=dict)  # by path of the child
    inputs: Dict[str, Seen] = field(default_factory=dict)
    functions: Dict[str, Seen] = field(default_factory=dict)  # what a function of a node gives, by that node
    rotary: Dict[str, Tuple[str, Node]] = field(default_factory=dict)  # by the node that is turned
    attention: Dict[str, Tuple[str, str, Node]] = field(default_factory=dict)  # by its last input: name, query, node
    scaled: Dict[str, Tuple[str, float]] = field(default_factory=dict)  # a head's output and the same times a factor, by each other
    before_positions: Dict[str, Tuple[str, str]] = field(default_factory=dict)  # by the sum: what the table was added to, the table
    tokens_at: Dict[str, List[str]] = field(default_factory=dict)  # the children that are given ids, and whose, call by call
    pixels_at: Optional[str] = None
    parameters: Dict[str, List[Block]] = field(default_factory=dict)
    unseen: List[str] = field(default_factory=list)


def channels_of(node: Node) -> int:
    op = node["op"]
    if op == "attention":
        return int(node["heads"] * node["value_dim"])
    if op == "rotary":
        return int(node["heads"] * node["head_dim"])
    if op in ("layer_norm", "rms_norm"):
        return int(node["width"] * node["groups"])
    return int(node["n_out"] if op == "linear" else node.get("width", 0))


def sides_of(nodes: List[Node]) -> Dict[str, str]:
    """Whose tokens the rows of each node are: those of its first input, and of an embedding its own."""
    sides: Dict[str, str] = {}
    for node in nodes:
        sides[node["name"]] = sides[nodes[node["inputs"][0]]["name"]] if node["inputs"] else "encoder" if node.get("encoder") else ""
    return sides


def _owners(module: torch.nn.Module, bound: Mapping[str, List[Block]]) -> Dict[str, List[str]]:
    """The paths of the children that hold each tensor; a tied one has several."""
    name_of: Dict[int, str] = {id(p): clean(name) for name, p in module.named_parameters()}
    owners: Dict[str, List[str]] = {}
    for path, child in module.named_modules():
        for p in child._parameters.values():
            if p is not None:
                for block in bound.get(name_of.get(id(p), ""), []):
                    owners.setdefault(block.tensor, []).append(path)
    return owners


def _common(paths: List[str]) -> str:
    """The child that holds them all."""
    parts = [p.split(".") for p in paths]
    same = 0
    while all(len(p) > same for p in parts) and len({p[same] for p in parts}) == 1:
        same += 1
    return ".".join(parts[0][:same])


class Planner:
    def __init__(self, module: torch.nn.Module, graph: Dict[str, Any], source: Source, names: Optional[Mapping[str, str]]) -> None:
        shapes = {clean(name): tuple(p.shape) for name, p in module.named_parameters()}
        self.plan = Plan(parameters=bind(shapes, source.tensors, names))
        self._modules = dict(module.named_modules())
        self._owners = _owners(module, self.plan.parameters)
        self._nodes: List[Node] = graph["nodes"]
        self._sides = sides_of(self._nodes)
        self._tensors: List[Dict[str, Any]] = graph["tensors"]

    def _tensor(self, node: Node, i: int = 0) -> str:
        return str(self._tensors[node["params"][i][0]]["name"])

    def _child(self, node: Node) -> Optional[str]:
        """The child whose output is this node."""
        if node["op"] == "experts":
            router = next((n for n in self._nodes if n["name"] == node["name"].rsplit(".", 1)[0] + ".router"), None)
            uses = [self._tensor(node, i) for i in range(len(node["params"]))] + ([self._tensor(router)] if router else [])
            return _common([path for name in uses for path in self._owners.get(name, [])])
        if node["op"] not in _GIVES or not node["params"]:
            return None
        table = node["op"] == "token_embedding"
        fitting = [p for p in self._owners.get(self._tensor(node), []) if isinstance(self._modules[p], torch.nn.Embedding) == table]
        stack = node["name"].split(".", 1)[0]
        own = [p for p in fitting if stack in ("encoder", "decoder") and stack in p.split(".")]  # of a table that two stacks share
        return next(iter(own or fitting), None)

    def _seen(self, node: Node) -> Seen:
        channels, side = channels_of(node), self._sides[node["name"]]
        if node["op"] != "linear":
            return Seen(node["name"], channels, side=side)
        number, row, col, rows, cols = node["params"][0]
        shape = self._tensors[number]["shape"]
        first, whole = (col, shape[-1]) if node["stored"] == "in_out" else (row, shape[0])
        return Seen(node["name"], channels, first if whole != channels else 0, whole if whole != channels else 0, side)

    def _followers(self) -> None:
        nodes, plan = self._nodes, self.plan
        for node in nodes:
            before = [nodes[i]["name"] for i in node["inputs"]]
            if node["op"] == "rotary":
                plan.rotary[before[0]] = (node["name"], node)
            elif node["op"] == "attention":
                plan.attention[before[1]] = (node["name"].rsplit(".", 1)[0], before[0], node)
            elif len(before) == 1 and not node["params"] and channels_of(node) and node["op"] not in ("residual", "cross_entropy", "scale"):
                plan.functions[before[0]] = Seen(node["name"], channels_of(node), side=self._sides[node["name"]])
            elif node["op"] == "learned_position" and nodes[node["inputs"][0]]["op"] == "patch_embedding":
                plan.before_positions[node["name"]] = (before[0], self._tensor(node))

    def run(self) -> Plan:
        plan, nodes = self.plan, self._nodes
        if "features" in {n["op"] for n in nodes}:
            raise StepzeroError("a model that hears is not recorded", "audit and check take it; stepzero measure runs the same weights")
        for node in nodes:
            path = self._child(node)
            if node["op"] == "patch_embedding":
                plan.pixels_at = next(iter(self._owners.get(self._tensor(node), [])), None)
            if path is None:
                continue
            if node["op"] == "token_embedding":
                plan.tokens_at.setdefault(path, []).append(self._sides[node["name"]])
            plan.outputs.setdefault(path, []).append(self._seen(node))
            if node["op"] in _GIVES and node["inputs"]:
                before = nodes[node["inputs"][0]]
                plan.inputs.setdefault(path, Seen(before["name"], channels_of(before), side=self._sides[before["name"]]))
        self._followers()
        seen = set(self._reachable())
        for node in nodes:
            before = nodes[node["inputs"][0]] if node["inputs"] else {}
            if node["op"] == "scale" and before["op"] == "linear" and node["name"] not in seen:
                plan.scaled[before["name"]], plan.scaled[node["name"]] = (node["name"], node["factor"]), (before["name"], 1 / node["factor"])
                seen.add(node["name"])
        plan.unseen = [n["name"] for n in nodes if n["name"] not in seen and n["op"] != "cross_entropy"]
        return plan

    def _reachable(self) -> Iterator[str]:
        plan = self.plan
        yield from (s.node for some in plan.outputs.values() for s in some)
        yield from (s.node for s in plan.inputs.values())
        yield from (name for name, _ in plan.rotary.values())
        yield from (name for name, _ in plan.before_positions.values())
        yield from (s.node for s in plan.functions.values())
