"""The words of architecture files (docs/architectures.md). Made from words.py by tests/python/arch_stub.py."""
from typing import Any, Dict, List, Mapping, Optional, Sequence

class Error(Exception): ...

class Wire:
    number: int
    factor: float
    def __add__(self, other: Any) -> Wire: ...
    def __sub__(self, other: Any) -> Wire: ...
    def __mul__(self, other: Any) -> Wire: ...
    def __rmul__(self, other: Any) -> Wire: ...
    def __truediv__(self, other: Any) -> Wire: ...
    def __neg__(self) -> Wire: ...

class Tensor:
    number: int
    def __mul__(self, other: Any) -> Any: ...

class Graph:
    nodes: List[Dict[str, Any]]
    tensors: List[Dict[str, Any]]
    def json(self) -> Dict[str, Any]: ...

from math import ceil as ceil, cos as cos, exp as exp, floor as floor, log as log, pi as pi, sin as sin, sqrt as sqrt
from .face import Model

def arch(name: str, **sizes: Any) -> None:
    """Begins a model: its name, and sizes that --set can change, which become variables."""

def graph() -> Graph:
    """What was built since arch()."""

def model(scheme: str = ...) -> Model:
    """The stepzero.Model of what was built since arch(): predict, measure, init, ..."""

def key(name: str, otherwise: Any, also: Sequence[str] = ..., null: Any = ...) -> Any:
    """What a config.json says under this name, of the default's type; the default where it says nothing."""

def count_key(path: str, otherwise: int) -> int:
    """How many entries an object or a list of a config.json has."""

def ignored(*names: str) -> None:
    """Keys of a config.json that change nothing about the model."""

def fail(message: str, remedy: str = ...) -> None: ...

def run(text: str, name: str = ..., settings: Any = ..., config: Optional[Mapping[str, Any]] = ...) -> Dict[str, Any]:
    """The canonical graph of a file's text; config: what a config.json says to a family's file."""

def main(words: List[str]) -> None: ...

def branch(name: str) -> None:
    """Nodes from here on belong to the branch of this name, until something is added to the stream."""

def tokens(vocab: Any, width: Any, name: str, padding: int = ..., encoder: bool = ..., init: Any = ..., label: str = ...) -> Wire:
    """Each token looks up its row of a table: the start of the stream."""

def add_positions(x: Wire, positions: Any, name: str, offset: int = ..., padding: int = ..., init: Any = ..., suffix: str = ..., frozen: bool = ..., label: str = ...) -> Wire:
    """A learned vector for the place in the sequence. frozen: it is not trained."""

def add_types(x: Wire, types: Any, name: str, init: Any = ..., label: str = ...) -> Wire:
    """The first row of a table, added to every token."""

def add_sinusoids(x: Wire, base: float = ..., label: str = ...) -> Wire:
    """Sines and cosines of the place in the sequence."""

def patches(image: Any, patch: Any, width: Any, name: str, class_token: str = ..., colours: int = ..., bias: bool = ..., flat: bool = ..., init: Any = ..., class_init: Any = ..., label: str = ...) -> Wire:
    """An image as a sequence: a class token, if it has a name, then its patches through one matrix. flat: the class token is stored as a vector."""

def features(frames: Any, bands: Any, label: str = ...) -> Wire:
    """Sound as it is given: a row for each frame, a channel for each band of frequencies."""

def probe(width: Any, name: str, init: Any = ..., label: str = ...) -> Wire:
    """A learned row for each sequence, the same for all: the query of a pooling by attention."""

def pool(x: Wire, how: Any, id: int = ..., label: str = ...) -> Wire:
    """One row of each sequence: its "first" token, the "last", the "mean", the mean of the "rest" behind the first, the first token that is "id", or the one with the "largest" id."""

def share_weights() -> None:
    """From here on a tensor whose name is there already is that tensor: layers that use the same weights."""

def unused(name: str, shape: Any, role: str = ..., init: Any = ...) -> None:
    """A tensor of the checkpoint that the model does not use."""

def stream(x: Wire) -> None:
    """Marks a point of the residual stream: in front of the first block, and behind each."""

def stack(name: str) -> None:
    """Begins the encoder or the decoder of a model that has both."""

def linear(x: Wire, out: Any, name: str, bias: bool = ..., role: str = ..., stored: str = ..., init: Any = ..., bias_init: Any = ..., label: str = ...) -> Wire:
    """Every token through one matrix."""

def fused(x: Wire, sizes: Any, roles: Any, name: str, bias: bool = ..., stored: str = ..., groups: int = ..., init: Any = ..., parts: bool = ..., role: str = ..., labels: Sequence[Any] = ...) -> List[Wire]:
    """Several products with the blocks of one matrix: a list of wires. groups: blocks lie in turns, a turn for each group of heads."""

def fused_apart(x: Wire, memory: Wire, name: str, bias: Any, init: Any = ...) -> List[Wire]:
    """Queries of one wire, keys and values of another, with the thirds of one matrix: a list of three wires."""

def scalar(value: Any, name: str) -> Any:
    """A learned number, to be multiplied with a wire."""

def channel_gain(x: Wire, name: str, value: float = ..., label: str = ...) -> Wire:
    """A learned number for each channel of a wire (LayerScale)."""

def layer_norm(x: Wire, name: str = ..., gain: bool = ..., bias: bool = ..., eps: float = ..., offset: bool = ..., groups: int = ..., each: bool = ..., names: Sequence[Any] = ..., init: Any = ..., label: str = ...) -> Wire:
    """Every token without its mean, put on one sphere. groups: heads, each alone; each: a gain for each of them."""

def rms_norm(x: Wire, name: str = ..., gain: bool = ..., eps: float = ..., offset: bool = ..., groups: int = ..., each: bool = ..., names: Sequence[Any] = ..., init: Any = ..., label: str = ...) -> Wire:
    """Every token put on one sphere. offset: the stored gain is gain - 1."""

def rotary(x: Wire, heads: Any, turns: Any = ..., theta: float = ..., turned: int = ..., first: int = ..., interleaved: bool = ..., label: str = ...) -> Wire:
    """Pairs of channels of each head turn with the position. turns: what rope(...) made; turned: how many channels, 0: all."""

def attention(q: Wire, k: Wire, v: Wire, heads: Any, kv_heads: int = ..., scale: float = ..., causal: bool = ..., window: int = ..., softcap: float = ..., alibi: Sequence[Any] = ..., table: Any = ..., farthest: int = ..., cross: bool = ..., chunk: int = ..., sinks: str = ..., sinks_init: Any = ..., label: str = ...) -> Wire:
    """Each query takes the softmax-weighted mean of the values it may see. scale 0: 1 / sqrt(channels of a key). chunk: keys of its own stretch of so many tokens only; sinks: the name of a learned score a head that no value belongs to."""

def distance_table(buckets: Any, heads: Any, name: str, init: Any = ...) -> Any:
    """A learned bias on the scores for each bucket of distances (T5), for attention(table=...)."""

def alibi_slopes(heads: Any, times: float = ...) -> List[float]:
    """The slopes of linear biases on the scores, one a head."""

def join_heads(own: Wire, shared: Wire, heads: Any, label: str = ...) -> Wire:
    """Each head is channels of its own and channels that all heads share (the keys of latent attention)."""

def temperature(x: Wire, by: Any, every: Any, label: str = ...) -> Wire:
    """Queries grow with the place in the sequence: times 1 + by ln(1 + floor((place + 1) / every))."""

def clip(x: Wire, most: Any, label: str = ...) -> Wire:
    """No number further than this from 0."""

def function(x: Wire, kind: Any, label: str = ...) -> Wire:
    """An elementwise function by its name."""

def relu(x: Wire) -> Wire:
    """max(x, 0)"""

def relu2(x: Wire) -> Wire:
    """max(x, 0)^2"""

def gelu(x: Wire) -> Wire:
    """x times the normal distribution function"""

def gelu_tanh(x: Wire) -> Wire:
    """GELU by its approximation with tanh"""

def silu(x: Wire) -> Wire:
    """x sigmoid(x)"""

def sigmoid(x: Wire) -> Wire:
    """1 / (1 + exp(-x))"""

def tanh(x: Wire) -> Wire:
    """tanh(x)"""

def xielu(x: Wire, name: str, label: str = ...) -> Wire:
    """A square where x is positive, an exponential elsewhere; how much of each is learned (Apertus)."""

def softcap(x: Wire, cap: Any, label: str = ...) -> Wire:
    """cap tanh(x / cap)"""

def dropout(x: Wire, p: Any, label: str = ...) -> Wire:
    """Numbers are left out with probability p; p 0: none is, and there is no node."""

def swiglu(x: Wire, ffn: Any, gate: Any, up: Any, down: Any, act: str = ..., bias: bool = ...) -> Wire:
    """A gated feed-forward of three matrices: down(act(gate x) * (up x))."""

def experts(x: Wire, logits: Wire, ffn: Any, names: Any, chosen: Any, act: str = ..., sigmoid: bool = ..., normalise: bool = ..., factor: float = ..., groups: int = ..., kept_groups: int = ..., group_best: int = ..., correction: Any = ..., label: str = ...) -> Wire:
    """Every token goes through the gated feed-forwards its router chose. names: the gate, up and down matrices, with {} for the expert; or of two tensors that stack those of all experts, gate over up, and down."""

def fused_experts(x: Wire, logits: Wire, ffn: Any, gate_up: Any, down: Any, chosen: Any, act: str = ..., stored: str = ..., interleaved: bool = ..., biases: Sequence[Any] = ..., sigmoid: bool = ..., normalise: bool = ..., most: float = ..., offset: float = ..., scales_input: bool = ..., label: str = ...) -> Wire:
    """Experts in two tensors: gate and up in one, halves or interleaved, and down. biases: the names of those of both; most: how large gate and up may get; offset: what is added to up; scales_input: what an expert reads is scaled by its weight, not what it makes."""

def shared_expert(x: Wire, routed: Wire, ffn: Any, name: str, act: str = ..., gate: str = ...) -> Wire:
    """What experts made, and what a gated feed-forward beside them makes of every token. ffn 0: there is none; gate: the matrix of one row whose sigmoid says how much of it a token gets."""

def time_conv(x: Wire, out: Any, size: Any, name: str, stride: int = ..., before: int = ..., after: int = ..., bias: bool = ..., init: Any = ..., label: str = ...) -> Wire:
    """A window over the tokens, a matrix of what it sees: before and after are zeros in front of a sequence and behind it."""

def causal_conv(wires: Any, size: Any, name: str, bias: bool = ..., init: Any = ..., labels: Sequence[Any] = ...) -> List[Wire]:
    """Every channel a weighted sum of its last numbers; of several wires with the rows of one tensor: a list of wires."""

def shift(x: Wire, label: str = ...) -> Wire:
    """Every token gets what the one before it was; the first gets nothing."""

def scan(x: Wire, step: Wire, into: Wire, out: Any, heads: Any, states: Any, decay: Any, skip: Any, step_bias: Any, groups: int = ..., each: bool = ..., least: float = ..., most: float = ..., step_init: Any = ..., label: str = ...) -> Wire:
    """A state that decays and takes in each token, as much as the token says itself (Mamba). decay, skip, step_bias: names; each: a decay for each state."""

def add(x: Wire, f: Wire, label: str = ...) -> Wire:
    """x + f. Where one of them is the stream, or the label has no dot, the sum goes on as the stream."""

def multiply(a: Wire, b: Wire, label: str = ...) -> Wire:
    """The product of two wires, channel by channel."""

def repeat(x: Wire, times: Any, label: str = ...) -> Wire:
    """Every channel, so many times in a row: a gate of a head or of a token, for all channels that it is for."""

def concat(a: Wire, b: Wire, label: str = ...) -> Wire:
    """The channels of one wire, then those of another."""

def take(x: Wire, first: Any, width: Any, label: str = ...) -> Wire:
    """Channels of a wire: so many, from the first on."""

def scale(x: Wire, factor: Any, label: str = ...) -> Wire:
    """A wire times a number, as a node. factor * x does the same, and is part of the sum where one follows."""

def sum(values: Any) -> Wire:
    """Of numbers, or of wires."""

def head(x: Wire, vocab: Any, name: str = ..., tied: str = ..., bias: str = ..., constant_bias: str = ..., scale: float = ..., cap: float = ..., init: Any = ...) -> Wire:
    """Logits: a matrix of its own, or tied="name.weight" of the embedding; bias: its name; constant_bias: of one that is not trained."""

def as_logits(x: Wire) -> Wire:
    """A wire that is scored as it is: what a model without a head makes of a sequence."""

def loss(logits: Wire) -> None:
    """The mean cross-entropy over all positions that have a target. It ends a file."""

def normal(std: Any, mean: float = ...) -> Any:
    """A normal distribution."""

def truncated(std: Any, cut: float = ...) -> Any:
    """A normal distribution without what lies further out than cut standard deviations."""

def uniform(most: Any) -> Any:
    """From -most to most."""

def constant(value: Any) -> Any:
    """One number."""

def time_steps(least: Any, most: Any, floor: float = ...) -> Any:
    """The inverse softplus of numbers uniform in the logarithm from least to most."""

def waves(rows: Any, cols: Any, halves: bool = ...) -> Any:
    """Not drawn: sines and cosines of the place. halves: all sines in front of all cosines, else in turns."""

def given(x: Wire, otherwise: Any) -> Any:
    """x, or what else it is where x is 0 or None: 0 in a size means that it follows from others."""

def only_if(on: Any, x: Wire) -> Any:
    """x where the first is True, else 0."""

def activation_key(name: str, otherwise: Any) -> str:
    """The elementwise function that a key names."""

def rope_theta_key(otherwise: Any) -> float:
    """The base of rotary frequencies, wherever a config.json tells it."""

def turned_part_key(otherwise: Any) -> float:
    """The part of a head's channels that turn."""

def rope_keys(positions: Any, otherwise: Sequence[Any] = ...) -> List[Any]:
    """The rule for rope(...) that rope_scaling or rope_parameters tell; otherwise: where there is neither."""

def rope(rule: Any, theta: Any, turned: Any) -> List[Any]:
    """For rotary(): ["none"], ["linear", factor], ["llama3", factor, original positions, low, high],
["yarn", factor, original positions, fast, slow, whole pairs, stretch] or ["longrope", stretch, factor, factor, ...]."""
