"""The words of architecture files under Python: to build a model in a notebook, or to run such a file.

    >>> from stepzero.arch import *
    >>> arch("two layers", layers=2, width=64, heads=4, vocab=97, positions=32)
    >>> x = tokens(vocab, width, "embed")
    >>> stream(x)
    >>> for l in range(layers):
    ...     h = rms_norm(x, f"layers.{l}.norm")
    ...     q, k, v = (linear(h, width, f"layers.{l}.{role}", role=role) for role in ("query", "key", "value"))
    ...     x = x + linear(attention(q, k, v, heads), width, f"layers.{l}.out", role="attention_out")
    ...     stream(x)
    >>> loss(head(rms_norm(x, "norm"), vocab, "head"))
    >>> 0.9 < model(scheme="xavier-normal").predict(seq_len=16).nodes["stream.2"].forward.second_moment.predicted < 1.1
    True

arch() begins a model, model() is the stepzero.Model of what was built since. The same text is an architecture file:

    python3 -m stepzero.arch my_model.py [--set layers=4] [--config config.json] > graph.json

What the words mean is in words.py, which stepzero reads too; this module adds only what the words are made of. Python 3.8 or later, nothing else."""
import html
import json
import math
import pathlib
import sys


class Error(Exception):
    """What a file did wrong, and what to do."""


class Wire:
    """(tokens, channels) of a model that is being built."""

    def __init__(self, number, factor=1.0):
        self.number, self.factor = number, factor

    def __repr__(self):
        if self.number >= len(_graph.nodes):
            return "<a wire of another model>"
        node = _graph.nodes[self.number]
        return f"<{node['name'] or 'wire'}: {node['op']}, {_channels(self)} channels{'' if self.factor == 1 else f', times {self.factor:g}'}>"

    def __add__(self, other):
        return _words["_binary"]("+", self, other)

    def __sub__(self, other):
        return _words["_binary"]("-", self, other)

    def __mul__(self, other):
        return _words["_binary"]("*", self, other)

    def __rmul__(self, other):
        return _words["_binary"]("*", other, self)

    def __truediv__(self, other):
        return _words["_binary"]("/", self, other)

    def __neg__(self):
        return _words["_binary"]("*", -1, self)

    def __bool__(self):
        raise Error("a wire is neither true nor false: x is None tells whether there is one")


class Tensor:
    def __init__(self, number):
        self.number = number

    def __mul__(self, other):
        return _words["_binary"]("*", self, other)


class Graph:
    """The tensors and nodes made so far, and what arch() declared."""

    def __init__(self, settings=(), config=None):
        self.config = config or {}
        self.tensors, self.nodes, self.numbers, self.names, self.last = [], [], {}, set(), {}
        self.settings, self.declared = dict(settings), None

    def _repr_html_(self):
        """Its nodes, in order, for a notebook."""
        def row(node):
            tensors = ", ".join(f"{self.tensors[use[0]]['name']} {self.tensors[use[0]]['shape']}" for use in node["params"])
            cells = (node["name"], node["op"], ", ".join(self.nodes[i]["name"] for i in node["inputs"]), tensors)
            return "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"

        head = "<tr><th>node</th><th>op</th><th>from</th><th>tensors</th></tr>"
        return f"<table>{head}{''.join(row(n) for n in self.nodes)}</table>"

    def __repr__(self):
        return "\n".join(f"{n['name']:28} {n['op']:16} {', '.join(self.nodes[i]['name'] for i in n['inputs'])}" for n in self.nodes)

    def json(self):
        if self.declared is None:
            raise Error('nothing was begun: arch("name", width=..., ...) comes first')
        name, sizes = self.declared
        return {"schema": "stepzero.graph/1", "name": name, "positions": sizes.get("positions"), "init_std": sizes.get("init_std"), "tensors": self.tensors, "nodes": self.nodes}


_graph = Graph()


def _tensor(name, shape, role, fan_in, fan_out, neutral, zero_row, in_out, law):
    if name in _graph.numbers:
        raise Error(f'two tensors are called "{name}"')
    _graph.numbers[name] = len(_graph.tensors)
    _graph.tensors.append({"name": name, "shape": list(shape), "role": role, "layer": -1, "fan_in": fan_in, "fan_out": fan_out,
                           "neutral": neutral, "zero_row": zero_row, "parts": [], "in_out": in_out, "law": law})
    return Tensor(_graph.numbers[name])


def _has(name):
    return name in _graph.numbers


def _find(name):
    if name not in _graph.numbers:
        raise Error(f'no tensor is called "{name}"')
    return Tensor(_graph.numbers[name])


def _matrix(tensor):
    shape = _graph.tensors[tensor.number]["shape"]
    return math.prod(shape[:-1]), (shape or [1])[-1]


def _rows(tensor):
    return _matrix(tensor)[0]


def _cols(tensor):
    return _matrix(tensor)[1]


def _layer(tensor, layer):
    _graph.tensors[tensor.number]["layer"] = layer


def _freeze(tensor):
    _graph.tensors[tensor.number]["frozen"] = True


def _use(tensor, row, col, rows, cols):
    return [tensor.number, row, col, rows, cols]


def _part(use, role, fan_out):
    _graph.tensors[use[0]]["parts"].append([role] + use[1:] + [fan_out])


_CHANNELS = {"attention": lambda f: f["heads"] * f["value_dim"], "rotary": lambda f: f["heads"] * f["head_dim"],
             "layer_norm": lambda f: f["width"] * f["groups"], "rms_norm": lambda f: f["width"] * f["groups"],
             "join": lambda f: f["heads"] * (f["own"] + f["shared"]), "repeat": lambda f: f["width"] * f["times"], "linear": lambda f: f["n_out"], "time_conv": lambda f: f["n_out"],
             "concat": lambda f: f["n"] + f["m"], "scan": lambda f: f["heads"] * f["head_dim"], "cross_entropy": lambda f: 1}


def _node(kind, inputs, uses, fields):
    node = {"name": "", "op": kind, "inputs": [x.number for x in inputs], "params": [list(u) for u in uses]}
    node.update(fields)
    _graph.nodes.append(node)
    return Wire(len(_graph.nodes) - 1)


def _rename(wire, name):
    fresh = name
    while fresh in _graph.names:
        _graph.last[name] = _graph.last.get(name, 1) + 1
        fresh = f"{name}.{_graph.last[name]}"
    _graph.names.discard(_graph.nodes[wire.number]["name"])
    _graph.names.add(fresh)
    _graph.nodes[wire.number]["name"] = fresh


def _channels(wire):
    if not isinstance(wire, Wire):
        raise Error("a wire is expected here")
    node = _graph.nodes[wire.number]
    return _CHANNELS.get(node["op"], lambda f: f["width"])(node)


def _replace(text, old, new):
    return text.replace(old, new)


def fail(message, remedy=""):
    raise Error(f"{message}\n  {remedy}" if remedy else message)


def _at(path):
    """What the config.json says there: (whether it is told, the value)."""
    value = _graph.config
    for part in path.split("."):
        if not isinstance(value, dict) or part not in value:
            return False, None
        value = value[part]
    return True, value


def _key_state(path):
    told, value = _at(path)
    return "given" if told and value is not None else "null" if told else "missing"


def count_key(path, otherwise):
    """How many entries an object or a list of a config.json has."""
    value = _at(path)[1]
    return len(value) if isinstance(value, (dict, list)) else otherwise


def ignored(*names):
    """Keys of a config.json that change nothing about the model."""


_KINDS = [(bool, bool, "true or false"), (int, int, "a whole number"), (float, (int, float), "a number"), (str, str, "a string"), (list, list, "a list")]


def key(name, otherwise, also=(), null=None):
    """What a config.json says under this name, of the default's type; the default where it says nothing."""
    if _graph.declared:
        raise Error("key(...) stands inside arch(...)")
    given = [(path, _at(path)[1]) for path in [name, *also] if _at(path)[1] is not None]
    if not given:
        return null if null is not None and any(_at(path)[0] for path in [name, *also]) else otherwise
    path, value = given[0]
    for other, same in given[1:]:
        if same != value:
            raise Error(f'"{other}" says {same}, but its other name "{path}" says {value}')
    for kind, fits, words in _KINDS:
        if type(otherwise) is kind and (not isinstance(value, fits) or isinstance(value, bool) != (kind is bool)):
            raise Error(f'"{path}": expected {words}, found {value}')
    return float(value) if type(otherwise) is float else value


def arch(name, **sizes):
    """Begins a model: its name, and sizes that --set can change, which become variables."""
    if _graph.declared is not None and sys._getframe(1).f_globals is not _words.get("_file"):
        _begin(Graph())
    unknown = [key for key in _graph.settings if key not in sizes]
    if unknown:
        raise Error(f"{name} has no {unknown[0]}; it has {', '.join(sizes)}")
    chosen = {key: _graph.settings.get(key, value) for key, value in sizes.items()}
    _graph.declared = (name, chosen)
    sys._getframe(1).f_globals.update(chosen)


_words = {
    "_tensor": _tensor, "_has": _has, "_find": _find, "_rows": _rows, "_cols": _cols, "_layer": _layer, "_freeze": _freeze, "_use": _use, "_part": _part,
    "_node": _node, "_rename": _rename, "_channels": _channels, "_replace": _replace,
    "_number": lambda x: x.number, "_factor": lambda x: x.factor, "_plain": lambda x: Wire(x.number),
    "_scaled": lambda x, factor: Wire(x.number, x.factor * factor), "_count": lambda: len(_graph.nodes),
    "_is_wire": lambda x: isinstance(x, Wire), "_is_tensor": lambda x: isinstance(x, Tensor),
    "_is_number": lambda x: isinstance(x, (int, float)),
    "arch": arch, "key": key, "count_key": count_key, "ignored": ignored, "_key_state": _key_state, "fail": fail, "pi": math.pi, "floor": math.floor, "ceil": math.ceil,
    "sqrt": math.sqrt, "exp": math.exp, "log": math.log, "cos": math.cos, "sin": math.sin,
}
_TEXT = pathlib.Path(__file__).with_name("words.py").read_text(encoding="utf-8")
_CODE = compile(_TEXT, "words.py", "exec")
exec(_CODE, _words)
__all__ = [name for name in _words if not name.startswith("_")]
globals().update({name: _words[name] for name in __all__})
__all__ += ["graph", "model"]


def _begin(graph):
    global _graph
    _graph = graph
    exec(_CODE, _words)  # anew: the words keep where a file stands


def graph():
    """What was built since arch()."""
    return _graph


def model(scheme="hf"):
    """The stepzero.Model of what was built since arch(): predict, measure, init, ..."""
    from .face import load

    return load(json.dumps(_graph.json()), scheme=scheme)


def run(text, name="model.py", settings=(), config=None):
    """The canonical graph of a file's text; config: what a config.json says to a family's file."""
    _begin(Graph(settings, config))
    names = {key: value for key, value in _words.items() if not key.startswith("_")}
    _words["_file"] = names
    text = text.replace("from stepzero.arch import *", "", 1)
    exec(compile(text, name, "exec"), names)
    return _graph.json()


def _value(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


def main(words):
    settings = {}
    while "--set" in words:
        at = words.index("--set")
        key, _, value = words[at + 1].partition("=")
        settings[key] = _value(value)
        del words[at:at + 2]
    config = None
    if "--config" in words:
        at = words.index("--config")
        config = json.loads(pathlib.Path(words[at + 1]).read_text(encoding="utf-8"))
        del words[at:at + 2]
    if len(words) != 1:
        sys.exit(__doc__)
    try:
        print(json.dumps(run(pathlib.Path(words[0]).read_text(encoding="utf-8"), words[0], settings, config)))
    except Error as error:
        sys.exit(f"{words[0]}: {error}")


if __name__ == "__main__":
    # one module, whether a file imports it or it runs a file
    from stepzero import arch as _own

    _own.main(sys.argv[1:])
