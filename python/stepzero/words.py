"""The words of an architecture file, in the language of such files.

stepzero reads this text before every file, and stepzero/arch.py runs it under Python: both make of a word the same nodes. A wire is
(tokens, channels). What words are made of: _tensor(...) and _node(...) add to the graph; _channels(x), _factor(x) and _plain(x) tell of
a wire how many channels it has, what number waits on it, and the wire without that number; _rename, _layer and _has name things.

Nodes get their names by themselves: [STACK]blocks.LAYER.BRANCH.LABEL, where stream(x) counts the layers, the roles of matrices tell the
branches (attn, ffn), and a label says what a node does (norm, q, mix, out). label= gives another, branch("name") opens a branch of its own.
"""

# ---- where a file stands

_at = ["", -1, "embed", False, -1, False, False, False]  # stack, layer, branch, opened by name, the stream's wire, has a gate, has an output, shares weights
_waiting = []  # nodes of a branch that is not known yet: [wire, label, tensors]
_base = []  # of each node the first part of its label: q of q_norm
_outside = ["embed", "final", "head", "logits"]  # branches that lie outside the blocks

_role_branch = [
    ["query", "attn"], ["key", "attn"], ["value", "attn"], ["query_key_value", "attn"], ["attention_out", "attn"],
    ["ffn_in", "ffn"], ["ffn_gate", "ffn"], ["ffn_out", "ffn"], ["router", "ffn"],
]
_role_label = [
    ["query", "q"], ["key", "k"], ["value", "v"], ["query_key_value", "qkv"], ["attention_out", "out"],
    ["ffn_gate", "gate"], ["ffn_out", "out"], ["router", "router"],
]


def _look_up(table, key, otherwise):
    for name, value in table:
        if name == key:
            return value
    return otherwise


def _make(name, shape, role, fan_in, fan_out, neutral, zero_row, in_out, law):
    if _at[7] and _has(name):
        return _find(name)
    return _tensor(name, shape, role, fan_in, fan_out, neutral, zero_row, in_out, law)


def _settle(x, label, tensors):
    inside = _at[2] not in _outside and _at[1] >= 0
    for t in tensors:
        _layer(t, _at[1] if inside else -1)
    full = label if "." in label or _at[2] == "" else _at[2] + "." + label
    if inside:
        full = f"blocks.{_at[1]}." + full
    _rename(x, (_at[0] if inside or _at[2] != "logits" else "") + full)


def branch(name):
    """Nodes from here on belong to the branch of this name, until something is added to the stream."""
    _at[2] = name
    _at[3] = True
    _at[5] = False
    _at[6] = False
    _settle_waiting()


def _settle_waiting():
    for x, label, tensors in list(_waiting):
        _settle(x, label, tensors)
    for i in range(len(_waiting)):
        _waiting.pop()


def _open(name):
    if _at[2] != name and not _at[3]:
        branch(name)
        _at[3] = False


def _close():
    _at[2] = ""
    _at[3] = False
    _at[5] = False
    _at[6] = False


def _add_node(kind, label, otherwise, inputs, tensors, uses, fields):
    x = _node(kind, inputs, uses, fields)
    named = label if label != "" else otherwise
    _base.append(named)
    if label == "" and _at[2] == "" and _at[1] >= 0:
        _waiting.append([x, named, tensors])
    else:
        _settle(x, named, tensors)
    return x


def _whole(t):
    return _use(t, 0, 0, _rows(t), _cols(t))


def _base_of(x):
    return _base[_number(x)]


# ---- the stream


def tokens(vocab, width, name, padding=-1, encoder=False, init=None, label=""):
    """Each token looks up its row of a table: the start of the stream."""
    t = name + ".weight"
    if not _has(t):
        _make(t, [vocab, width], "token_embedding", vocab, width, 1.0, padding, False, init)
    t = _find(t)
    return _add_node("token_embedding", label, "tokens", [], [t], [_whole(t)], [["vocab", vocab], ["width", width], ["padding", padding], ["encoder", encoder]])


def add_positions(x, positions, name, offset=0, padding=-1, init=None, suffix=".weight", frozen=False, label=""):
    """A learned vector for the place in the sequence. frozen: it is not trained."""
    width = _channels(x)
    shape = [positions + offset, width] if suffix != "" else [1, positions, width]
    t = _make(name + suffix, shape, "position_embedding", positions + offset, width, 1.0, padding, False, init)
    if frozen:
        _freeze(t)
    return _add_node("learned_position", label, "positions", [x], [t], [_whole(t)],
                     [["positions", positions], ["width", width], ["offset", offset], ["constant", False], ["padding", padding]])


def add_types(x, types, name, init=None, label=""):
    """The first row of a table, added to every token."""
    width = _channels(x)
    t = _make(name + ".weight", [types, width], "position_embedding", types, width, 1.0, -1, False, init)
    return _add_node("learned_position", label, "types", [x], [t], [_whole(t)],
                     [["positions", types], ["width", width], ["offset", 0], ["constant", True], ["padding", -1]])


def add_sinusoids(x, base=10000.0, label=""):
    """Sines and cosines of the place in the sequence."""
    return _add_node("sinusoidal_position", label, "positions", [x], [], [], [["width", _channels(x)], ["base", float(base)]])


def patches(image, patch, width, name, class_token="", colours=3, bias=True, flat=False, init=None, class_init=None, label=""):
    """An image as a sequence: a class token, if it has a name, then its patches through one matrix. flat: the class token is stored as a vector."""
    size = colours * patch * patch
    t = [_make(name + ".weight", [width, colours, patch, patch], "projection", size, width, 1.0, -1, False, init)]
    if bias:
        t.append(_make(name + ".bias", [width], "bias", size, width, 1.0, -1, False, None))
    if class_token != "":
        t.append(_make(class_token, [width] if flat else [1, 1, width], "position_embedding", 1, width, 1.0, -1, False, class_init))
    return _add_node("patch_embedding", label, "patches", [], t, [_whole(each) for each in t],
                     [["side", image], ["patch", patch], ["colours", colours], ["width", width], ["bias", bias], ["class_token", class_token != ""]])


def features(frames, bands, label=""):
    """Sound as it is given: a row for each frame, a channel for each band of frequencies."""
    return _add_node("features", label, "features", [], [], [], [["frames", frames], ["width", bands]])


def probe(width, name, init=None, label=""):
    """A learned row for each sequence, the same for all: the query of a pooling by attention."""
    t = _make(name, [1, 1, width], "position_embedding", 1, width, 1.0, -1, False, init)
    return _add_node("probe", label, "probe", [], [t], [_whole(t)], [["width", width]])


def pool(x, how, id=-1, label=""):
    """One row of each sequence: its "first" token, the "last", the "mean", the mean of the "rest" behind the first, the first token that is "id", or the one with the "largest" id."""
    x = _wire(x)
    if how not in ["first", "last", "mean", "rest", "id", "largest"]:
        fail(f"no pooling is called {how}", "first, last, mean, rest, id, largest")
    return _add_node("pool", label, "pool", [x], [], [],
                     [["width", _channels(x)], ["first", 1 if how == "rest" else 0], ["count", 0 if how in ["mean", "rest"] else 1],
                      ["last", how == "last"], ["largest", how == "largest"], ["id", id if how == "id" else -1]])


def share_weights():
    """From here on a tensor whose name is there already is that tensor: layers that use the same weights."""
    _at[7] = True


def unused(name, shape, role="gain", init=None):
    """A tensor of the checkpoint that the model does not use."""
    cols = shape[len(shape) - 1]
    _freeze(_make(name, shape, role, cols if role == "projection" else 1, shape[0], 1.0, -1, False, init))


def stream(x):
    """Marks a point of the residual stream: in front of the first block, and behind each."""
    x = _wire(x)
    _close()
    _settle_waiting()
    _at[1] = _at[1] + 1
    _at[4] = _number(x)
    _rename(x, _at[0] + f"stream.{_at[1]}")


def stack(name):
    """Begins the encoder or the decoder of a model that has both."""
    if _at[1] >= 0:
        branch("final")
    _at[0] = name + "."
    _at[1] = -1
    _at[4] = -1
    _at[2] = "embed"
    _at[3] = False


# ---- matrices


def _label_of(role, otherwise):
    if role == "ffn_in":
        return "up" if _at[5] else "in"
    return _look_up(_role_label, role, otherwise)


def _remember(role):
    if role == "ffn_gate":
        _at[5] = True
    if role == "attention_out" or role == "ffn_out":
        _at[6] = True


def _matrix_use(t, stored, first, size, width):
    return _use(t, 0, first, width, size) if stored == "in_out" else _use(t, first, 0, size, width)


def linear(x, out, name, bias=False, role="projection", stored="out_in", init=None, bias_init=None, label=""):
    """Every token through one matrix."""
    x = _wire(x)
    width = _channels(x)
    if _look_up(_role_branch, role, "") != "":
        _open(_look_up(_role_branch, role, ""))
    shape = [width, out] if stored == "in_out" else [out, width]
    t = [_make(name + ".weight", shape, role, width, out, 1.0, -1, stored == "in_out", init)]
    if bias:
        t.append(_make(name + ".bias", [out], "bias", width, out, 1.0, -1, False, bias_init))
    fields = [["n_in", width], ["n_out", out], ["bias", bias], ["stored", stored], ["pieces", 1]]
    y = _add_node("linear", label, _label_of(role, "linear"), [x], t, [_whole(each) for each in t], fields)
    _remember(role)
    return y


def fused(x, sizes, roles, name, bias=False, stored="out_in", groups=1, init=None, parts=True, role="", labels=[]):
    """Several products with the blocks of one matrix: a list of wires. groups: blocks lie in turns, a turn for each group of heads."""
    x = _wire(x)
    width = _channels(x)
    total = 0
    for n in sizes:
        total = total + n
    if role == "":
        role = "query_key_value" if "query" in roles else roles[len(roles) - 1]
    _open(_look_up(_role_branch, role, "linear"))
    shape = [width, total] if stored == "in_out" else [total, width]
    w = _make(name + ".weight", shape, role, width, total, 1.0, -1, stored == "in_out", init)
    t = [w]
    if bias:
        t.append(_make(name + ".bias", [total], "bias", width, total, 1.0, -1, False, None))
    made = []
    first = 0
    for n, part in zip(sizes, roles):
        own = n // groups
        uses = []
        for g in range(groups):
            u = _matrix_use(w, stored, first + g * (total // groups), own, width)
            uses.append(u)
            if parts:
                _part(u, part, n)
        if bias:
            for g in range(groups):
                uses.append(_use(t[1], 0, first + g * (total // groups), 1, own))
        fields = [["n_in", width], ["n_out", n], ["bias", bias], ["stored", stored], ["pieces", groups]]
        made.append(_add_node("linear", labels[len(made)] if len(labels) > 0 else "", _label_of(part, "linear"), [x], t, uses, fields))
        _remember(part)
        first = first + own
    return made


def fused_apart(x, memory, name, bias, init=None):
    """Queries of one wire, keys and values of another, with the thirds of one matrix: a list of three wires."""
    width = _channels(x)
    w = _make(name, [3 * width, width], "query_key_value", width, 3 * width, 1.0, -1, False, init)
    b = _make(bias, [3 * width], "bias", width, 3 * width, 1.0, -1, False, None)
    made = []
    for wire, part in zip([x, memory, memory], ["query", "key", "value"]):
        at = len(made) * width
        uses = [_use(w, at, 0, width, width), _use(b, 0, at, 1, width)]
        _part(uses[0], part, width)
        made.append(_add_node("linear", _look_up(_role_label, part, ""), "", [_wire(wire)], [w, b], uses,
                              [["n_in", width], ["n_out", width], ["bias", True], ["stored", "out_in"], ["pieces", 1]]))
    return made


def scalar(value, name):
    """A learned number, to be multiplied with a wire."""
    return _make(name, [1], "branch_gain", 1, 1, 1.0, -1, False, ["constant", float(value), 0.0, 0.0])


def channel_gain(x, name, value=1.0, label=""):
    """A learned number for each channel of a wire (LayerScale)."""
    x = _wire(x)
    n = _channels(x)
    t = _make(name, [n], "branch_gain", 1, n, 1.0, -1, False, ["constant", float(value), 0.0, 0.0])
    return _add_node("gain", label, "gain", [x], [t], [_whole(t)], [["width", n], ["one", False]])


# ---- norms


def _norm(kind, x, name, gain, bias, eps, offset, groups, each, all_names, init, label):
    x = _wire(x)
    width = _channels(x) // groups
    neutral = 0.0 if offset else 1.0
    t = []
    uses = []
    for on, end, role, law in [[gain, ".weight", "gain", init], [bias, ".bias", "bias", None]]:
        if on and each and len(all_names) == 0:
            t.append(_make(name + end, [groups, width], role, 1, width, neutral, -1, False, law))
            for k in range(groups):
                uses.append(_use(t[len(t) - 1], k, 0, 1, width))
        elif on:
            for stem in all_names if len(all_names) > 0 else [name]:
                t.append(_make(stem + end, [width], role, 1, width, neutral, -1, False, law))
                uses.append(_whole(t[len(t) - 1]))
    otherwise = "post_norm" if _at[6] else "norm"
    if groups > 1 or _base_of(x) in ["q", "k", "v", "q_latent", "kv_latent"]:
        otherwise = _base_of(x) + "_norm"
    fields = [["width", width], ["eps", float(eps)], ["gain", gain], ["bias", bias], ["unit_offset", offset], ["groups", groups],
              ["gain_per_group", each]]
    y = _add_node(kind, label, otherwise, [x], t, uses, fields)
    _base[_number(y)] = _base_of(x)
    if label == "mid":
        _at[4] = _number(y)
    return y


def layer_norm(x, name="", gain=True, bias=True, eps=1e-5, offset=False, groups=1, each=False, names=[], init=None, label=""):
    """Every token without its mean, put on one sphere. groups: heads, each alone; each: a gain for each of them."""
    return _norm("layer_norm", x, name, gain, bias, eps, offset, groups, each, names, init, label)


def rms_norm(x, name="", gain=True, eps=1e-6, offset=False, groups=1, each=False, names=[], init=None, label=""):
    """Every token put on one sphere. offset: the stored gain is gain - 1."""
    return _norm("rms_norm", x, name, gain, False, eps, offset, groups, each, names, init, label)


# ---- attention


def rotary(x, heads, turns=None, theta=10000.0, turned=0, first=0, interleaved=False, label=""):
    """Pairs of channels of each head turn with the position. turns: what rope(...) made; turned: how many channels, 0: all."""
    x = _wire(x)
    dim = _channels(x) // heads
    if _channels(x) % heads != 0:
        fail(f"heads={heads} do not divide {_channels(x)} channels")
    base, count, frequencies, stretch = [theta, given(turned, dim), [], 1.0] if turns is None else turns
    return _add_node("rotary", label, _base_of(x) + "_rot", [x], [], [],
                     [["heads", heads], ["head_dim", dim], ["turned", count], ["first", first], ["base", float(base)],
                      ["interleaved", interleaved], ["frequencies", frequencies], ["stretch", float(stretch)]])


def attention(q, k, v, heads, kv_heads=0, scale=0.0, causal=True, window=0, softcap=0.0, alibi=[], table=None, farthest=128, cross=False,
              chunk=0, sinks="", sinks_init=None, label=""):
    """Each query takes the softmax-weighted mean of the values it may see. scale 0: 1 / sqrt(channels of a key). chunk: keys of its own stretch of so many tokens only; sinks: the name of a learned score a head that no value belongs to."""
    q, k, v = _wire(q), _wire(k), _wire(v)
    _open("attn")
    kv = given(kv_heads, heads)
    if _channels(q) % heads != 0 or _channels(v) % kv != 0:
        fail(f"heads={heads} and kv_heads={kv} do not divide q and v of {_channels(q)} and {_channels(v)} channels")
    dim = _channels(q) // heads
    t = [] if table is None else [table]
    own = [] if sinks == "" else [_make(sinks, [heads], "bias", 1, heads, 1.0, -1, False, sinks_init)]
    return _add_node("attention", label, "mix", [q, k, v], own, [_whole(each) for each in t + own],
                     [["heads", heads], ["kv_heads", kv], ["key_dim", dim], ["value_dim", _channels(v) // kv],
                      ["scale", float(scale) if scale != 0 else 1 / sqrt(float(dim))], ["causal", causal and not cross], ["window", window],
                      ["softcap", float(softcap)], ["alibi", alibi], ["buckets", 0 if table is None else _rows(table)],
                      ["farthest", farthest], ["cross", cross], ["chunk", chunk], ["sinks", sinks != ""]])


def distance_table(buckets, heads, name, init=None):
    """A learned bias on the scores for each bucket of distances (T5), for attention(table=...)."""
    return _make(name + ".weight", [buckets, heads], "position_embedding", buckets, heads, 1.0, -1, False, init)


def alibi_slopes(heads, times=1.0):
    """The slopes of linear biases on the scores, one a head."""
    power = max([2 ** n for n in range(40) if 2 ** n <= heads])
    slopes = []
    for h in range(heads):
        n = float(power if h < power else 2 * power)
        i = float(h + 1 if h < power else 2 * (h - power) + 1)
        slopes.append(times * 2.0 ** (-8 * i / n))
    return slopes


def join_heads(own, shared, heads, label=""):
    """Each head is channels of its own and channels that all heads share (the keys of latent attention)."""
    return _add_node("join", label, "k", [own, shared], [], [],
                     [["heads", heads], ["own", _channels(own) // heads], ["shared", _channels(shared)]])


def temperature(x, by, every, label=""):
    """Queries grow with the place in the sequence: times 1 + by ln(1 + floor((place + 1) / every))."""
    x = _wire(x)
    return _add_node("temperature", label, _base_of(x) + "_scaled", [x], [], [], [["width", _channels(x)], ["by", float(by)], ["every", float(every)]])


def clip(x, most, label=""):
    """No number further than this from 0."""
    x = _wire(x)
    y = _add_node("clip", label, _base_of(x) + "_clip", [x], [], [], [["width", _channels(x)], ["most", float(most)]])
    _base[_number(y)] = _base_of(x)
    return y


# ---- functions


def function(x, kind, label=""):
    """An elementwise function by its name."""
    x = _wire(x)
    return _add_node(kind, label, "act", [x], [], [], [["width", _channels(x)]])


def relu(x):
    """max(x, 0)"""
    return function(x, "relu")


def relu2(x):
    """max(x, 0)^2"""
    return function(x, "relu2")


def gelu(x):
    """x times the normal distribution function"""
    return function(x, "gelu")


def gelu_tanh(x):
    """GELU by its approximation with tanh"""
    return function(x, "gelu_tanh")


def silu(x):
    """x sigmoid(x)"""
    return function(x, "silu")


def sigmoid(x):
    """1 / (1 + exp(-x))"""
    return function(x, "sigmoid")


def tanh(x):
    """tanh(x)"""
    return function(x, "tanh")


def xielu(x, name, label=""):
    """A square where x is positive, an exponential elsewhere; how much of each is learned (Apertus)."""
    x = _wire(x)
    t = []
    # the inverse softplus of 0.8 and 0.3, 0.5 and -1e-6, all as the class rounds them, to bfloat16
    for end, shape, value in [["alpha_p", [1], 0.2041015625], ["alpha_n", [1], -1.046875], ["beta", [], 0.5], ["eps", [], -9.98377799987793e-07]]:
        t.append(_make(name + end, shape, "branch_gain", 1, 1, 1.0, -1, False, constant(value)))
    _freeze(t[2])
    _freeze(t[3])
    return _add_node("xielu", label, "act", [x], t, [_whole(each) for each in t], [["width", _channels(x)]])


def softcap(x, cap, label=""):
    """cap tanh(x / cap)"""
    x = _wire(x)
    return _add_node("softcap", label, "capped", [x], [], [], [["width", _channels(x)], ["cap", float(cap)]])


def dropout(x, p, label=""):
    """Numbers are left out with probability p; p 0: none is, and there is no node."""
    x = _wire(x)
    if p == 0:
        return x
    return _add_node("dropout", label, "dropout", [x], [], [], [["width", _channels(x)], ["p", float(p)], ["node", _count()]])


def swiglu(x, ffn, gate, up, down, act="silu", bias=False):
    """A gated feed-forward of three matrices: down(act(gate x) * (up x))."""
    width = _channels(x)
    g = function(linear(x, ffn, name=gate, bias=bias, role="ffn_gate"), act)
    return linear(multiply(g, linear(x, ffn, name=up, bias=bias, role="ffn_in")), width, name=down, bias=bias, role="ffn_out")


def experts(x, logits, ffn, names, chosen, act="silu", sigmoid=False, normalise=True, factor=1.0, groups=1, kept_groups=1, group_best=1,
            correction=None, label=""):
    """Every token goes through the gated feed-forwards its router chose. names: the gate, up and down matrices, with {} for the expert; or of two tensors that stack those of all experts, gate over up, and down."""
    x, logits = _wire(x), _wire(logits)
    width = _channels(x)
    count = _channels(logits)
    c = [] if correction is None else [_make(correction, [count], "bias", 1, count, 1.0, -1, False, None)]
    t, uses = _expert_tensors(names, count, width, ffn) if len(names) == 3 else _expert_stacks(names, count, width, ffn)
    t, uses = t + c, uses + [_whole(each) for each in c]
    return _add_node("experts", label, "out", [x, logits], t, uses,
                     [["width", width], ["ffn", ffn], ["activation", act], ["experts", count], ["chosen", chosen], ["sigmoid", sigmoid],
                      ["normalise", normalise], ["factor", float(factor)], ["groups", groups], ["kept_groups", kept_groups],
                      ["group_best", group_best], ["corrected", correction is not None], ["stored", "out_in"], ["fused", False], ["interleaved", False],
                      ["bias", False], ["most", 0.0], ["offset", 0.0], ["scales_input", False]])


def fused_experts(x, logits, ffn, gate_up, down, chosen, act="silu", stored="in_out", interleaved=False, biases=[], sigmoid=False, normalise=True, most=0.0,
                  offset=0.0, scales_input=False, label=""):
    """Experts in two tensors: gate and up in one, halves or interleaved, and down. biases: the names of those of both; most: how large gate and up may get; offset: what is added to up; scales_input: what an expert reads is scaled by its weight, not what it makes."""
    x, logits = _wire(x), _wire(logits)
    width = _channels(x)
    count = _channels(logits)
    inside = stored == "in_out"
    first = _make(gate_up, [count, width, 2 * ffn] if inside else [count, 2 * ffn, width], "ffn_gate", width, ffn, 1.0, -1, inside, None)
    last = _make(down, [count, ffn, width] if inside else [count, width, ffn], "ffn_out", ffn, width, 1.0, -1, inside, None)
    t = [first, last]
    uses = []
    for e in range(count):
        for tensor, size, out, role in [[first, width, 2 * ffn, "ffn_gate"], [last, ffn, width, "ffn_out"]]:
            rows, cols = [size, out] if inside else [out, size]
            uses.append(_use(tensor, e * rows, 0, rows, cols))
            _part(uses[len(uses) - 1], role, ffn if role == "ffn_gate" else width)
    if len(biases) > 0:
        t = t + [_make(name, [count, size], "bias", 1, size, 1.0, -1, False, None) for name, size in zip(biases, [2 * ffn, width])]
        for e in range(count):
            uses = uses + [_use(t[2], e, 0, 1, 2 * ffn), _use(t[3], e, 0, 1, width)]
    return _add_node("experts", label, "out", [x, logits], t, uses,
                     [["width", width], ["ffn", ffn], ["activation", act], ["experts", count], ["chosen", chosen], ["sigmoid", sigmoid],
                      ["normalise", normalise], ["factor", 1.0], ["groups", 1], ["kept_groups", 1], ["group_best", 1], ["corrected", False],
                      ["stored", stored], ["fused", True], ["interleaved", interleaved], ["bias", len(biases) > 0], ["most", float(most)],
                      ["offset", float(offset)], ["scales_input", scales_input]])


def _expert_tensors(names, count, width, ffn):
    made = []
    for e in range(count):
        for k in range(3):
            shape = [width, ffn] if k == 2 else [ffn, width]
            made.append(_tensor(_replace(names[k], "{}", str(e)) + ".weight", shape, ["ffn_gate", "ffn_in", "ffn_out"][k], shape[1], shape[0],
                                1.0, -1, False, None))
    return [made, [_whole(each) for each in made]]


def _expert_stacks(names, count, width, ffn):
    first = _tensor(names[0] + ".weight", [count, 2 * ffn, width], "ffn_gate", width, ffn, 1.0, -1, False, None)
    last = _tensor(names[1] + ".weight", [count, width, ffn], "ffn_out", ffn, width, 1.0, -1, False, None)
    uses = []
    for e in range(count):
        for t, row, rows, cols, role in [[first, 2 * e * ffn, ffn, width, "ffn_gate"], [first, (2 * e + 1) * ffn, ffn, width, "ffn_in"],
                                         [last, e * width, width, ffn, "ffn_out"]]:
            uses.append(_use(t, row, 0, rows, cols))
            _part(uses[len(uses) - 1], role, rows)
    return [[first, last], uses]


def shared_expert(x, routed, ffn, name, act="silu", gate=""):
    """What experts made, and what a gated feed-forward beside them makes of every token. ffn 0: there is none; gate: the matrix of one row whose sigmoid says how much of it a token gets."""
    if ffn == 0:
        return routed
    g = function(linear(x, ffn, name=name + "gate_proj", role="ffn_gate", label="ffn.shared.gate"), act, label="ffn.shared.act")
    up = linear(x, ffn, name=name + "up_proj", role="ffn_in", label="ffn.shared.up")
    out = linear(multiply(g, up, label="ffn.shared.product"), _channels(x), name=name + "down_proj", role="ffn_out", label="ffn.shared.out")
    if gate != "":
        share = function(linear(x, 1, name=gate, role="router", label="ffn.shared.choice"), "sigmoid", label="ffn.shared.share")
        out = multiply(out, repeat(share, _channels(x), label="ffn.shared.shares"), label="ffn.shared.taken")
    return add(routed, out, label="ffn.out")


# ---- along the sequence


def time_conv(x, out, size, name, stride=1, before=0, after=0, bias=True, init=None, label=""):
    """A window over the tokens, a matrix of what it sees: before and after are zeros in front of a sequence and behind it."""
    x = _wire(x)
    n = _channels(x)
    t = [_make(name + ".weight", [out, n, size], "projection", n * size, out, 1.0, -1, False, init)]
    if bias:
        t.append(_make(name + ".bias", [out], "bias", n * size, out, 1.0, -1, False, None))
    return _add_node("time_conv", label, "conv", [x], t, [_whole(each) for each in t],
                     [["n_in", n], ["n_out", out], ["size", size], ["stride", stride], ["before", before], ["after", after],
                      ["depthwise", False], ["bias", bias]])


def causal_conv(wires, size, name, bias=True, init=None, labels=[]):
    """Every channel a weighted sum of its last numbers; of several wires with the rows of one tensor: a list of wires."""
    widths = [_channels(_wire(x)) for x in wires]
    total = sum(widths)
    t = [_make(name + ".weight", [total, 1, size], "projection", size, total, 1.0, -1, False, init)]
    if bias:
        t.append(_make(name + ".bias", [total], "bias", size, total, 1.0, -1, False, None))
    made = []
    first = 0
    for x, n in zip(wires, widths):
        uses = [_use(t[0], first, 0, n, size)] + ([_use(t[1], 0, first, 1, n)] if bias else [])
        made.append(_add_node("time_conv", labels[len(made)] if len(labels) > 0 else "", "conv", [_wire(x)], t, uses,
                              [["n_in", n], ["n_out", n], ["size", size], ["stride", 1], ["before", size - 1], ["after", 0],
                               ["depthwise", True], ["bias", bias]]))
        first = first + n
    return made


def shift(x, label=""):
    """Every token gets what the one before it was; the first gets nothing."""
    x = _wire(x)
    return _add_node("shift", label, "shifted", [x], [], [], [["width", _channels(x)]])


def scan(x, step, into, out, heads, states, decay, skip, step_bias, groups=1, each=True, least=0.0, most=1e30, step_init=None, label=""):
    """A state that decays and takes in each token, as much as the token says itself (Mamba). decay, skip, step_bias: names; each: a decay for each state."""
    x = _wire(x)
    t = [_make(decay, [heads, states] if each else [heads], "branch_gain", 1, heads, 1.0, -1, False, ["ramp", float(states if each else heads), 0.0, 0.0]),
         _make(skip, [heads], "branch_gain", 1, heads, 1.0, -1, False, constant(1.0)),
         _make(step_bias, [heads], "bias", 1, heads, 1.0, -1, False, step_init)]
    return _add_node("scan", label, "scan", [x, _wire(step), _wire(into), _wire(out)], t, [_whole(one) for one in t],
                     [["heads", heads], ["head_dim", _channels(x) // heads], ["states", states], ["groups", groups], ["each", each],
                      ["least", float(least)], ["most", float(most)]])


# ---- sums and products


def add(x, f, label=""):
    """x + f. Where one of them is the stream, or the label has no dot, the sum goes on as the stream."""
    on = _number(x) == _at[4] or _number(f) == _at[4] or (label != "" and "." not in label)
    if _channels(x) != _channels(f):
        fail(f"these wires have {_channels(x)} and {_channels(f)} channels")
    inputs = [_plain(x), _plain(f)]
    fields = [["width", _channels(x)], ["skip_scale", _factor(x)], ["branch_scale", _factor(f)]]
    if not on or _at[1] < 0:
        return _add_node("residual", label, "sum", inputs, [], [], fields)
    if label == "":
        label = "mid" if _at[2] != "" else "sum"
    _close()
    y = _add_node("residual", label, "", inputs, [], [], fields)
    _at[4] = _number(y)
    return y


def multiply(a, b, label=""):
    """The product of two wires, channel by channel."""
    a, b = _wire(a), _wire(b)
    if _channels(a) != _channels(b):
        fail(f"these wires have {_channels(a)} and {_channels(b)} channels")
    return _add_node("multiply", label, "product", [a, b], [], [], [["width", _channels(a)]])


def repeat(x, times, label=""):
    """Every channel, so many times in a row: a gate of a head or of a token, for all channels that it is for."""
    x = _wire(x)
    return x if times == 1 else _add_node("repeat", label, "repeated", [x], [], [], [["width", _channels(x)], ["times", times]])


def concat(a, b, label=""):
    """The channels of one wire, then those of another."""
    a, b = _wire(a), _wire(b)
    return _add_node("concat", label, "joined", [a, b], [], [], [["n", _channels(a)], ["m", _channels(b)]])


def take(x, first, width, label=""):
    """Channels of a wire: so many, from the first on."""
    x = _wire(x)
    return _add_node("take", label, "taken", [x], [], [], [["from", _channels(x)], ["first", first], ["width", width]])


def scale(x, factor, label=""):
    """A wire times a number, as a node. factor * x does the same, and is part of the sum where one follows."""
    return _add_node("scale", label, "scaled", [_plain(x)], [], [], [["width", _channels(x)], ["factor", _factor(x) * factor]])


def _wire(x):
    if not _is_wire(x):
        fail("a wire is expected here", "tokens(...) makes the first")
    return x if _factor(x) == 1 else scale(x, 1.0)


def _times(t, x):
    x = _wire(x)
    if _rows(t) * _cols(t) != 1:
        fail("only a learned scalar is multiplied with a wire", "scalar(1.0, name=...), or channel_gain(x, name=...)")
    return _add_node("gain", "", "gain", [x], [t], [_whole(t)], [["width", _channels(x)], ["one", True]])


def _binary(sign, a, b):
    if sign == "+" and _is_wire(a) and _is_wire(b):
        return add(a, b)
    if sign == "-" and _is_wire(a) and _is_wire(b):
        return add(a, _scaled(b, -1.0))
    if sign == "*" and _is_wire(a) and _is_wire(b):
        return multiply(a, b)
    if sign == "*" and _is_tensor(a) and _is_wire(b):
        return _times(a, b)
    if sign == "*" and _is_wire(a) and _is_tensor(b):
        return _times(b, a)
    if sign == "*" and _is_number(a) and _is_wire(b):
        return _scaled(b, float(a))
    if sign == "*" and _is_wire(a) and _is_number(b):
        return _scaled(a, float(b))
    if sign == "/" and _is_wire(a) and _is_number(b):
        return _scaled(a, 1 / float(b))
    return fail(f"{sign} does not go between these two", "wires are added and multiplied; numbers and scalars are multiplied with wires")


def sum(values):
    """Of numbers, or of wires."""
    values = list(values)
    total = values[0] if len(values) > 0 else 0
    for i in range(1, len(values)):
        total = total + values[i]
    return total


# ---- the end


def head(x, vocab, name="", tied="", bias="", constant_bias="", scale=1.0, cap=0.0, init=None):
    """Logits: a matrix of its own, or tied="name.weight" of the embedding; bias: its name; constant_bias: of one that is not trained."""
    x = _wire(x)
    if not (_at[3] and _at[2] == "head"):
        branch("final")
    width = _channels(x)
    branch("logits")
    t = [_find(tied) if tied != "" else _make(name + ".weight", [vocab, width], "head", width, vocab, 1.0, -1, False, init)]
    if bias != "":
        t.append(_make(bias, [vocab], "bias", 1, vocab, 1.0, -1, False, None))
    if constant_bias != "":
        t.append(_make(constant_bias, [1, vocab], "bias", 1, vocab, 1.0, -1, False, None))
        _freeze(t[1])
    fields = [["n_in", width], ["n_out", vocab], ["bias", bias + constant_bias != ""], ["stored", "out_in"], ["pieces", 1]]
    y = _node("linear", [x], [_whole(each) for each in t], fields)
    _base.append("logits")
    _rename(y, "logits")
    if scale != 1:
        y = _add_node("scale", "", "scaled", [y], [], [], [["width", vocab], ["factor", float(scale)]])
    if cap > 0:
        y = softcap(y, cap)
    return y


def as_logits(x):
    """A wire that is scored as it is: what a model without a head makes of a sequence."""
    x = _wire(x)
    _rename(x, "logits")
    return x


def loss(logits):
    """The mean cross-entropy over all positions that have a target. It ends a file."""
    x = _wire(logits)
    y = _node("cross_entropy", [x], [], [["vocab", _channels(x)]])
    _rename(y, "loss")


# ---- how tensors are drawn: init=


def normal(std, mean=0.0):
    """A normal distribution."""
    return ["normal", float(mean), float(std), 0.0]


def truncated(std, cut=2.0):
    """A normal distribution without what lies further out than cut standard deviations."""
    return ["truncated_normal", 0.0, float(std), float(cut)]


def uniform(most):
    """From -most to most."""
    return ["uniform", 0.0, float(most), 0.0]


def constant(value):
    """One number."""
    return ["constant", float(value), 0.0, 0.0]


def time_steps(least, most, floor=0.0):
    """The inverse softplus of numbers uniform in the logarithm from least to most."""
    return ["time_steps", float(least), float(most), float(floor)]


def waves(rows, cols, halves=True):
    """Not drawn: sines and cosines of the place. halves: all sines in front of all cosines, else in turns."""
    return ["waves", float(rows), float(cols), 1.0 if halves else 0.0]


zeros = ["constant", 0.0, 0.0, 0.0]


# ---- what a family's file reads of a config.json, inside arch(...)


def given(x, otherwise):
    """x, or what else it is where x is 0 or None: 0 in a size means that it follows from others."""
    return otherwise if x is None or x == 0 else x


def only_if(on, x):
    """x where the first is True, else 0."""
    return x if on else 0


_function_names = [
    ["swish", "silu"], ["gelu_new", "gelu_tanh"], ["gelu_fast", "gelu_tanh"], ["gelu_pytorch_tanh", "gelu_tanh"],
    ["gelu_python_tanh", "gelu_tanh"], ["gelu_accurate", "gelu_tanh"], ["gelu_python", "gelu"], ["linear", "identity"],
]


def activation_key(name, otherwise):
    """The elementwise function that a key names."""
    named = key(name, otherwise)
    return _look_up(_function_names, named, named)


# rope_parameters is what newer files call rope_scaling; some tell it for each type of layers.
def _rope_place():
    at = "rope_parameters." if _key_state("rope_parameters") == "given" else "rope_scaling."
    return at + "full_attention." if _key_state(at + "full_attention") == "given" else at


def rope_theta_key(otherwise):
    """The base of rotary frequencies, wherever a config.json tells it."""
    return key("rope_theta", otherwise, also=[_rope_place() + "rope_theta"])


def turned_part_key(otherwise):
    """The part of a head's channels that turn."""
    return key("partial_rotary_factor", otherwise, also=[_rope_place() + "partial_rotary_factor"])


def rope_keys(positions, otherwise=["none"]):
    """The rule for rope(...) that rope_scaling or rope_parameters tell; otherwise: where there is neither."""
    at = _rope_place()
    if _key_state("rope_parameters") == "missing" and _key_state("rope_scaling") == "missing":
        return otherwise
    kind = key(at + "rope_type", "default", also=[at + "type"])
    original = key(at + "original_max_position_embeddings", positions, also=["original_max_position_embeddings"])
    factor = key(at + "factor", 0.0)
    if kind in ["linear", "llama3"] and factor == 0:
        fail(f"rope_scaling: the rule {kind} needs a factor")
    if kind == "default" or kind == "dynamic":  # dynamic begins behind the positions
        return ["none"]
    if kind == "linear":
        return ["linear", factor]
    if kind == "llama3":
        return ["llama3", factor, original, key(at + "low_freq_factor", 1.0), key(at + "high_freq_factor", 4.0)]
    if kind == "yarn":
        factor = factor if factor > 0 else float(positions) / original
        whole, part = key(at + "mscale", 0.0), key(at + "mscale_all_dim", 0.0)
        stretch = _yarn_stretch(factor, whole) / _yarn_stretch(factor, part) if whole > 0 and part > 0 else _yarn_stretch(factor, 1.0)
        return ["yarn", factor, original, key(at + "beta_fast", 32.0), key(at + "beta_slow", 1.0), key(at + "truncate", True),
                key(at + "attention_factor", stretch)]
    fail(f"rope_scaling: there is no rule {kind} for this family", "default, dynamic, linear, llama3, yarn")


def _yarn_stretch(factor, times):
    return 1.0 if factor <= 1 else 0.1 * times * log(factor) + 1.0


# ---- rotary frequencies of long-context rules


def rope(rule, theta, turned):
    """For rotary(): ["none"], ["linear", factor], ["llama3", factor, original positions, low, high],
    ["yarn", factor, original positions, fast, slow, whole pairs, stretch] or ["longrope", stretch, factor, factor, ...]."""
    kind = rule[0]
    plain = [theta ** (-2.0 * i / turned) for i in range(turned // 2)]
    if kind == "none":
        return [theta, turned, [], 1.0]
    if kind == "linear":
        return [theta, turned, [w / rule[1] for w in plain], 1.0]
    if kind == "llama3":
        return [theta, turned, _llama3(plain, rule[1], rule[2], rule[3], rule[4]), 1.0]
    if kind == "yarn":
        return [theta, turned, _yarn(plain, theta, turned, rule[1], rule[2], rule[3], rule[4], rule[5]), rule[6]]
    if kind == "longrope":
        return [theta, turned, [plain[i] / rule[i + 2] for i in range(turned // 2)], rule[1]]
    fail(f"no rotary rule {kind}", "none, linear, llama3, yarn, longrope")


# Low frequencies are divided by the factor, high ones kept, those between mixed (Llama 3.1).
def _llama3(plain, factor, original, low, high):
    made = []
    for w in plain:
        smooth = min(max((original * w / (2 * pi) - low) / (high - low), 0.0), 1.0)
        made.append(w * ((1 - smooth) / factor + smooth))
    return made


# A ramp over the pairs between those that turn fast and slow times within the original length.
def _yarn(plain, theta, turned, factor, original, fast, slow, truncate):
    ends = [turned * log(original / (times * 2 * pi)) / (2 * log(theta)) for times in [fast, slow]]
    low = max(float(floor(ends[0]) if truncate else ends[0]), 0.0)
    high = min(float(ceil(ends[1]) if truncate else ends[1]), float(turned - 1))
    if low == high:
        high = high + 0.001
    made = []
    for w in plain:
        ramp = min(max((len(made) - low) / (high - low), 0.0), 1.0)
        made.append(w * ((1 - ramp) + ramp / factor))
    return made
