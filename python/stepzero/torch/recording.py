"""record: hooks that gather, during a step of the user's own, the statistics that stepzero predicts."""
import os
import tempfile
from dataclasses import replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

import torch

from .. import _lib
from ..face import Model
from ..errors import StepzeroError
from ..results import Comparison, Signal
from .names import clean
from .nodes import Plan, Planner, Seen
from .source import Source, config_text, find_source, inner, shapes_of
from .statistics import Numbers, as_tokens, norm_of, of_attention, of_gradient, of_values, times, turned


def _on_gradient(x: Any, note: Callable[[torch.Tensor], None]) -> Any:
    return x.register_hook(note)


def _first_tensor(value: Any) -> Optional[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, (tuple, list)):
        return next((t for t in value if isinstance(t, torch.Tensor)), None)
    return next((t for t in value.values() if isinstance(t, torch.Tensor)), None) if isinstance(value, Mapping) else None


def _text_of(ids: List[List[int]]) -> str:
    return "\n".join(" ".join(map(str, row)) for row in ids)


class Recorder:
    """What was seen while it was open: `signal`, and `compare()` beside the prediction. Nothing of the step is kept alive."""

    def __init__(self, module: torch.nn.Module, source: Source, graph: Dict[str, Any], plan: Plan, labels: Optional[torch.Tensor]) -> None:
        self._module, self._source, self._graph, self._plan, self._labels = module, source, graph, plan, labels
        self._handles: List[Any] = []
        self._forward: Dict[str, Numbers] = {}
        self._backward: Dict[str, Numbers] = {}
        self._attention: Dict[str, Numbers] = {}
        self._parameters: Dict[str, Numbers] = {}
        self._kept: Dict[str, torch.Tensor] = {}  # until the node that needs it has been seen
        self._produced: Dict[int, str] = {}  # outputs of this pass, by identity
        self._ids: Dict[str, List[List[int]]] = {}  # by side: an encoder's, and the others
        self._pixels: Optional[torch.Tensor] = None
        self._loss: Optional[float] = None
        self._shapes: Dict[str, Tuple[int, int]] = {}  # sequences and tokens, by side

    # ---- what was seen

    @property
    def unseen(self) -> List[str]:
        """Nodes that showed in no child's output or input."""
        return [n["name"] for n in self._graph["nodes"] if n["name"] not in self._forward and n["op"] != "cross_entropy"]

    def loss(self, value: Any) -> None:
        """Tells the loss, where the module does not return it."""
        self._loss = float(value)

    # ---- hooks

    def __enter__(self) -> "Recorder":
        for path, child in self._module.named_modules():
            if path in self._plan.tokens_at or path == self._plan.pixels_at:
                self._handles.append(child.register_forward_pre_hook(self._note_input(list(self._plan.tokens_at.get(path, [""])))))
            if path in self._plan.inputs:
                self._handles.append(child.register_forward_pre_hook(self._before(self._plan.inputs[path], self._plan.outputs.get(path, []))))
            if path in self._plan.outputs:
                self._handles.append(child.register_forward_hook(self._after(self._plan.outputs[path], self._plan.inputs.get(path))))
            elif path and not any(True for _ in child.parameters()):
                self._handles.append(child.register_forward_hook(self._function))
        self._handles.append(self._module.register_forward_hook(self._whole))
        for name, p in self._module.named_parameters():
            self._note_parameter(name, p)
        return self

    def __exit__(self, *_: Any) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._kept.clear()
        self._produced.clear()

    def _note_parameter(self, name: str, p: torch.Tensor) -> None:
        def views(x: torch.Tensor) -> Any:
            for b in self._plan.parameters[clean(name)]:
                yield b.tensor, x[tuple(slice(s, s + n) for s, n in zip(b.start, b.shape))]

        def note(d: torch.Tensor) -> None:
            for tensor, part in views(d.detach()):
                self._parameters[tensor].setdefault("gradient_norm", norm_of(part))

        for tensor, part in views(p.detach()):
            self._parameters[tensor] = {"std": float(part.float().std(unbiased=False))}
        if p.requires_grad:
            self._handles.append(_on_gradient(p, note))

    def _note_input(self, sides: List[str]) -> Callable[..., None]:
        """`sides`: whose input this child is given, call by call: a table that an encoder and a decoder share is asked twice."""

        def hook(_: torch.nn.Module, args: Any) -> None:
            x = _first_tensor(args)
            side = next((s for s in sides if s not in self._shapes), None)
            if x is None or side is None:
                return
            if x.is_floating_point():
                self._pixels = x.detach().float().cpu()
                self._shapes[side] = (x.shape[0], int(self._graph["positions"]))
            else:
                self._ids[side] = x.tolist()
                self._shapes[side] = (int(x.shape[0]), int(x.shape[1]))

        return hook

    def _before(self, seen: Seen, after: List[Seen]) -> Callable[..., None]:
        def hook(_: torch.nn.Module, args: Any) -> None:
            x = _first_tensor(args)
            if x is not None and not any(self._scaled_before(s.node, seen.node, x) for s in after):
                self._see([seen], x)

        return hook

    def _after(self, seen: List[Seen], before: Optional[Seen]) -> Callable[..., None]:
        def hook(child: torch.nn.Module, args: Any, out: Any) -> None:
            x = _first_tensor(out)
            if isinstance(child, torch.nn.Embedding) and len(seen) > 1:
                now = [s for s in seen if s.side in self._shapes and s.node not in self._forward][:1]  # a call of one side after the other
            else:
                now = seen
            if before is not None and len(now) == 1 and self._scaled_before(now[0].node, before.node, _first_tensor(args)):
                now = [replace(now[0], node=self._plan.scaled[now[0].node][0])]
            if x is None or not now or now[0].side not in self._shapes:
                return
            batch, tokens = self._shapes[now[0].side]
            given = _first_tensor(args)
            if x.dim() == 2 and x.shape[0] == batch != x.shape[0] * tokens and given is not None and given.dim() == 2 and len(now) == 1:
                self._see_one_token(child, now[0], x)
            else:
                self._see(now, x)

        return hook

    def _scaled_before(self, node: str, before: str, given: Optional[torch.Tensor]) -> bool:
        """Whether the factor behind this node was put on its input: what comes out is then that node times the factor."""
        if node not in self._plan.scaled or before not in self._forward or given is None:
            return False
        factor = self._plan.scaled[node][1]
        return abs(of_values(given.detach())["second_moment"] / (factor**2 * self._forward[before]["second_moment"]) - 1) < abs(factor**2 - 1) / 2

    def _function(self, _: torch.nn.Module, args: Any, out: Any) -> None:
        """A child without parameters whose input is a node: the function behind it."""
        given, x = _first_tensor(args), _first_tensor(out)
        node = self._produced.get(id(given)) if given is not None else None
        if node is not None and x is not None and node in self._plan.functions:
            self._see([self._plan.functions[node]], x)

    def _whole(self, _: torch.nn.Module, __: Any, out: Any) -> None:
        loss = getattr(out, "loss", None)
        x = loss if isinstance(loss, torch.Tensor) else _first_tensor(out)
        if self._loss is None and x is not None and x.numel() == 1:
            self._loss = float(x.detach())
        self._produced.clear()

    # ---- numbers

    def _see(self, seen: List[Seen], x: torch.Tensor) -> None:
        """Numbers of the nodes in this tensor now, and of their gradients when they come."""
        shape = self._shapes.get(seen[0].side)
        if shape is None or all(s.node in self._forward and s.node in self._backward for s in seen):
            return
        whole = as_tokens(x, *shape, seen[0].of or seen[0].channels)
        if whole is None or whole.shape[1] < shape[1]:  # one token of a node that was seen whole
            return
        for s in seen:
            if s.node not in self._forward:
                self._note_forward(s.node, whole[..., s.first:s.first + s.channels])
        self._produced[id(x)] = seen[0].node
        if x.requires_grad:
            _on_gradient(x, self._gradient(seen))

    def _note_forward(self, node: str, x: torch.Tensor) -> None:
        self._forward[node] = of_values(x)
        if node in self._plan.rotary:
            name, how = self._plan.rotary[node]
            x, node = turned(x, how, False), name
            self._forward[node] = of_values(x)
        for name, query, how in self._plan.attention.values():
            if node == query:
                self._kept[node] = x
        if node in self._plan.attention:
            name, query, how = self._plan.attention[node]
            if query in self._kept:
                self._attention[name] = of_attention(self._kept.pop(query), x, how, self._table(how))
        if node in self._plan.before_positions:
            name, table = self._plan.before_positions[node]
            self._forward[name] = of_values(x - dict(self._module.named_parameters())[self._live(table)].detach())
        if node in self._plan.scaled:
            name, factor = self._plan.scaled[node]
            self._forward[name] = times(self._forward[node], factor)
        if node == "final.norm" and self._pixels is not None:
            self._kept[node] = x

    def _table(self, attention: Dict[str, Any]) -> Optional[torch.Tensor]:
        """The learned biases of its scores, (buckets, heads)."""
        if not attention["buckets"]:
            return None
        name = self._graph["tensors"][attention["params"][0][0]]["name"]
        return dict(self._module.named_parameters())[self._live(name)].detach()

    def _live(self, tensor: str) -> str:
        return next(name for name, blocks in self._plan.parameters.items() if blocks[0].tensor == tensor)

    def _gradient(self, seen: List[Seen]) -> Callable[[torch.Tensor], None]:
        def hook(d: torch.Tensor) -> None:
            whole = as_tokens(d, *self._shapes[seen[0].side], seen[0].of or seen[0].channels)
            for s in seen:
                if whole is not None and s.node not in self._backward:
                    self._note_gradient(s.node, whole[..., s.first:s.first + s.channels])

        return hook

    def _note_gradient(self, node: str, d: torch.Tensor) -> None:
        self._backward[node] = of_gradient(d)
        if node in self._plan.rotary:
            name, how = self._plan.rotary[node]
            self._backward[name] = of_gradient(turned(d, how, True))
        if node in self._plan.scaled:
            name, factor = self._plan.scaled[node]
            self._backward[name] = times(self._backward[node], 1 / factor)
        if node in self._plan.before_positions:
            self._backward[self._plan.before_positions[node][0]] = self._backward[node]

    def _see_one_token(self, child: Any, seen: Seen, x: torch.Tensor) -> None:
        """Only one token goes on, such as that of the class: the node speaks of all, and the others have no gradient."""
        before = self._kept.pop("final.norm", None)
        if before is None or seen.node in self._forward:
            return
        with torch.no_grad():
            self._forward[seen.node] = of_values(torch.nn.functional.linear(before, child.weight, child.bias))
        batch, tokens = self._shapes[seen.side]

        def hook(d: torch.Tensor) -> None:
            whole = torch.zeros(batch, tokens, seen.channels, dtype=d.dtype, device=d.device)
            whole[:, 0] = d
            self._backward.setdefault(seen.node, of_gradient(whole))

        if x.requires_grad:
            _on_gradient(x, hook)

    # ---- results

    def _raw(self) -> Dict[str, Any]:
        def told(numbers: Numbers) -> Dict[str, Any]:
            return {what: {"measured": value, "stderr": None} for what, value in numbers.items()}

        if "" not in self._shapes:
            raise StepzeroError("no forward pass of the module was recorded", "run it inside: with record(module) as rec: module(...).backward()")
        nodes = [{"name": n["name"], "kind": n["op"], "forward": told(self._forward[n["name"]]), "backward": told(self._backward.get(n["name"], {}))}
                 for n in self._graph["nodes"] if n["name"] in self._forward]
        shapes = {t.name: t.shape for t in self._source.tensors}
        norms = [p["gradient_norm"] for p in self._parameters.values() if "gradient_norm" in p]
        loss = {} if self._loss is None else {"measured": self._loss, "stderr": None}
        return {"schema": "stepzero.signal/1", "model": {"name": type(inner(self._module)).__name__}, "scheme": self._source.request["scheme"],
                "input": dict(zip(("batch", "seq_len"), self._shapes[""])), "seeds": 1, "loss": loss,
                "gradient_norm": {"measured": sum(n * n for n in norms) ** 0.5, "stderr": None} if norms else {}, "nodes": nodes,
                "attention": [{"name": name, **told(numbers)} for name, numbers in self._attention.items()],
                "parameters": [{"name": name, "shape": list(shapes[name]), **told(numbers)} for name, numbers in self._parameters.items()], "findings": []}

    @property
    def signal(self) -> Signal:
        """What was seen, as measure would tell it."""
        return Signal(self._raw())

    def _lines(self) -> str:
        """The ids of each sequence, and the one that is to follow the last."""
        ids, labels = self._ids[""], self._labels.tolist() if self._labels is not None else []
        told = len(labels) == len(ids) and all(isinstance(of, list) and len(of) == len(row) for of, row in zip(labels, ids)) and labels != ids
        return _text_of([row + [max(labels[i][-1], 0) if told else row[0]] for i, row in enumerate(ids)])

    def predict(self, **options: Any) -> Signal:
        """What theory says of the same input."""
        self._raw()
        model: Model = self._source.model()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "input")
            if "encoder" in self._ids:
                options["encoder_tokens"] = os.path.join(folder, "encoder")
                with open(options["encoder_tokens"], "w", encoding="ascii") as file:
                    file.write(_text_of(self._ids["encoder"]))
            if self._ids:
                with open(path, "w", encoding="ascii") as file:
                    file.write(self._lines())
                return model.predict(tokens=path, **options)
            assert self._pixels is not None
            with open(path, "wb") as raw:
                raw.write(self._pixels.contiguous().numpy().tobytes())
            if self._labels is not None and self._labels.dim() == 1:
                options["labels"] = os.path.join(folder, "labels")
                with open(options["labels"], "w", encoding="ascii") as file:
                    file.write(" ".join(map(str, self._labels.tolist())))
            return model.predict(pixels=path, **options)

    def compare(self, **options: Any) -> Comparison:
        """The recorded numbers beside the predicted ones: z of every number, the worst first."""
        return Comparison(self.predict(**options), self.signal)


def record(module: torch.nn.Module, config: Any = None, scheme: str = "hf", labels: Optional[torch.Tensor] = None, names: Optional[Mapping[str, str]] = None,
           set: Optional[Mapping[str, Any]] = None, like: str = "") -> Recorder:
    """Records the first forward and backward pass inside a with block.

        with stepzero.torch.record(model) as rec:
            loss = model(**batch).loss
            loss.backward()
        print(rec.compare())

    `scheme` is what the prediction assumes of the weights. `labels` are what the positions are scored against, where they are not the next tokens.
    """
    if hasattr(module, "_orig_mod"):
        raise StepzeroError("a compiled module does not run its hooks", "record(module._orig_mod), and call that inside the block")
    if config is None and config_text(getattr(inner(module), "config", None)) is None:
        raise StepzeroError("what the module's parts are is not known: there is no configuration", 'config="gpt2", a path, a dict or an object with to_dict()')
    source = find_source(module, shapes_of(module), config, None, scheme, set, like)
    request = {k: v for k, v in source.request.items() if k in ("model", "set", "like")}
    graph = _lib.call("describe", request).json()
    return Recorder(module, source, graph, Planner(module, graph, source, names).run(), labels)
