"""The numbers that stepzero.signal/1 tells of a tensor, from one that is in use. Rows are summed in floats, sums over rows in doubles."""
import math
from typing import Any, Dict, List, Optional

import torch

Numbers = Dict[str, float]


def as_tokens(x: torch.Tensor, batch: int, tokens: int, channels: int) -> Optional[torch.Tensor]:
    """As (batch, tokens, channels), whichever way a module lays heads and tokens; (batch, 1, channels) where only one token goes on."""
    x = x.detach()
    if x.dim() == 4 and x.shape[0] == batch and x.shape[1] * x.shape[3] == channels and x.shape[2] == tokens and x.shape[1] != tokens:
        x = x.transpose(1, 2)
    if x.numel() == batch * tokens * channels:
        return x.reshape(batch, tokens, channels)
    if x.numel() == batch * channels:
        return x.reshape(batch, 1, channels)
    return None


def _floats(x: torch.Tensor) -> torch.Tensor:
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def norm_of(x: torch.Tensor) -> float:
    """The root of the sum of all squares."""
    rows = _floats(x).reshape(-1, x.shape[-1] if x.dim() > 0 else 1)
    return math.sqrt(float((torch.linalg.vector_norm(rows, dim=-1).double() ** 2).sum()))


def of_values(x: torch.Tensor) -> Numbers:
    """Second moment, variance, mean and the mean cosine of pairs of different tokens of a sequence; x is (batch, tokens, channels)."""
    x = _floats(x)
    norms = torch.linalg.vector_norm(x, dim=-1)
    if not bool((norms > 1e-15).all()):  # squares of floats this small vanish
        x = x.double()
        norms = torch.linalg.vector_norm(x, dim=-1)
    count = x.numel()
    square = float((norms.double() ** 2).sum()) / count
    mean = float(x.sum(-1).double().sum()) / count
    out = {"second_moment": square, "variance": square - mean * mean, "mean": mean}
    tokens = x.shape[1]
    if tokens > 1:
        inverse = torch.where(norms > 0, 1 / norms, torch.zeros_like(norms))
        sums = torch.bmm(inverse[:, None, :], x)[:, 0].double()
        there = (norms > 0).double().sum(-1)
        out["token_cosine"] = float((((sums**2).sum(-1) - there) / (tokens * (tokens - 1))).mean())
    return out


def of_gradient(d: torch.Tensor) -> Numbers:
    numbers = of_values(d)
    out = {"norm": (numbers["second_moment"] * d.numel()) ** 0.5, "second_moment": numbers["second_moment"]}
    if "token_cosine" in numbers:
        out["token_cosine"] = numbers["token_cosine"]
    return out


def times(numbers: Numbers, factor: float) -> Numbers:
    """The numbers of a tensor, times a factor.

    >>> times({"second_moment": 3.0, "mean": 1.0, "token_cosine": 0.5}, -2.0)
    {'second_moment': 12.0, 'mean': -2.0, 'token_cosine': 0.5}
    """
    power = {"second_moment": factor**2, "variance": factor**2, "mean": factor, "norm": abs(factor)}
    return {what: value * power.get(what, 1.0) for what, value in numbers.items()}


def turned(x: torch.Tensor, rotary: Dict[str, Any], gradient: bool) -> torch.Tensor:
    """Rotary positions on (batch, tokens, heads * head_dim), as the graph's node says. Of a gradient at the input, that at the output."""
    x = _floats(x)
    size, half, first = rotary["head_dim"], rotary["turned"] // 2, rotary["first"]
    speeds = rotary["frequencies"] or [rotary["base"] ** (-2 * i / rotary["turned"]) for i in range(half)]
    angle = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * torch.tensor(speeds, dtype=torch.float64)
    factor = 1 / rotary["stretch"] if gradient else rotary["stretch"]
    cos, sin = ((factor * f).to(x.dtype).to(x.device)[:, None, :] for f in (angle.cos(), angle.sin()))
    y = x.reshape(*x.shape[:2], -1, size).clone()
    part = y[..., first:first + 2 * half]
    a, b = (part[..., 0::2], part[..., 1::2]) if rotary["interleaved"] else (part[..., :half], part[..., half:])
    a, b = a * cos - b * sin, b * cos + a * sin
    if rotary["interleaved"]:
        part[..., 0::2], part[..., 1::2] = a, b
    else:
        part[..., :half], part[..., half:] = a, b
    return y.reshape(x.shape)


def _buckets(node: Dict[str, Any], queries: int, keys: int) -> torch.Tensor:
    """(queries, keys): the row of the table of biases for each pair. Near distances have one each, far ones share."""
    ahead = torch.arange(keys)[None] - torch.arange(queries)[:, None]
    half = node["buckets"] if node["causal"] else node["buckets"] // 2
    distance = (-ahead).clamp(min=0) if node["causal"] else ahead.abs()
    near = half // 2
    ratio = math.log(node["farthest"] / near)
    far = near + ((distance.clamp(min=1).float() / near).log() / ratio * (half - near)).long().clamp(max=half - near - 1)
    rows = torch.where(distance < near, distance, far)
    return rows if node["causal"] else torch.where(ahead > 0, rows + half, rows)


def _visible(node: Dict[str, Any], queries: int, keys: int) -> torch.Tensor:
    visible = torch.ones(queries, keys, dtype=torch.bool)
    if node["causal"]:
        visible = visible.tril()
    if node["window"]:
        visible = visible.triu(1 - int(node["window"]))
        visible = visible if node["causal"] else visible.tril(int(node["window"]) - 1)
    if node["chunk"]:
        visible &= torch.arange(queries)[:, None] // int(node["chunk"]) == torch.arange(keys)[None] // int(node["chunk"])
    return visible


def of_attention(q: torch.Tensor, k: torch.Tensor, node: Dict[str, Any], table: Optional[torch.Tensor] = None) -> Numbers:
    """Variance of the scaled scores over visible pairs; entropy and sum of squares of the weights. `table`: learned biases by distance."""
    heads, size, queries, keys = node["heads"], node["key_dim"], q.shape[1], k.shape[1]
    sums: List[float] = [0.0] * 5  # scores, squares, pairs, entropy, weights squared
    visible = _visible(node, queries, keys).to(q.device)
    plain = not node["alibi"] and not node["sinks"]
    bias = None if table is None else _floats(table)[_buckets(node, queries, keys).to(table.device)].permute(2, 0, 1)
    for asked, held in zip(_floats(q), _floats(k)):  # a sequence at a time
        h = asked.reshape(queries, heads, size).transpose(0, 1)
        g = held.reshape(keys, -1, size).transpose(0, 1)
        scores = node["scale"] * (h @ g.repeat_interleave(heads // g.shape[0], dim=0).transpose(1, 2))
        seen = scores.masked_select(visible).double()
        sums[0] += float(seen.sum())
        sums[1] += float((seen**2).sum())
        sums[2] += seen.numel()
        if not plain:
            continue
        if node["softcap"]:
            scores = node["softcap"] * torch.tanh(scores / node["softcap"])
        if bias is not None:
            scores = scores + bias
        logs = torch.log_softmax(scores.masked_fill(~visible, float("-inf")), -1)
        weights = logs.exp()
        sums[3] -= float((weights * logs.masked_fill(~visible, 0)).sum(-1).double().sum())
        sums[4] += float((weights**2).sum(-1).double().sum())
    mean, rows = sums[0] / sums[2], q.shape[0] * heads * queries
    out = {"score_variance": sums[1] / sums[2] - mean * mean}
    return {**out, "entropy": sums[3] / rows, "sum_squares": sums[4] / rows} if plain else out
