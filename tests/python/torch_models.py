"""GPT-2, LLaMA, Mixtral and ViT as transformers writes them: the same modules, the same names, the same order of work. Written out here because
transformers cannot be had from Debian; and bare modules that hold any model's tensors."""
import math

import torch
from torch import nn
from torch.nn import functional as F


class Config(dict):
    """What model.config is to users: attributes, and to_dict()."""

    __getattr__ = dict.__getitem__

    def to_dict(self):
        return dict(self)


def attend(q, k, v, heads, causal):
    size = q.shape[-1] // heads
    q, k, v = (x.view(*x.shape[:2], -1, size).transpose(1, 2) for x in (q, k, v))
    return attend_heads(q, k, v, causal)


def attend_heads(q, k, v, causal):
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
    if causal:
        visible = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
    return (torch.softmax(scores, -1) @ v).transpose(1, 2).flatten(2)


def loss_of(logits, labels):
    """Every position is scored; labels are the next tokens."""
    return F.cross_entropy(logits.flatten(0, -2).float(), labels.flatten())


class Conv1D(nn.Module):
    def __init__(self, out, inside):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(inside, out)), nn.Parameter(torch.zeros(out))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


class NewGELU(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


class GPT2Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads = c.n_head
        self.c_attn, self.c_proj = Conv1D(3 * c.n_embd, c.n_embd), Conv1D(c.n_embd, c.n_embd)
        self.register_buffer("bias", torch.ones(c.n_positions, c.n_positions, dtype=torch.bool).tril()[None, None], persistent=False)

    def forward(self, x):
        q, k, v = self.c_attn(x).split(x.shape[-1], dim=2)
        return self.c_proj(attend(q, k, v, self.heads, True))


class GPT2MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c_fc, self.c_proj, self.act = Conv1D(4 * c.n_embd, c.n_embd), Conv1D(c.n_embd, 4 * c.n_embd), NewGELU()

    def forward(self, x):
        return self.c_proj(self.act(self.c_fc(x)))


class GPT2Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(c.n_embd, eps=1e-5), GPT2Attention(c)
        self.ln_2, self.mlp = nn.LayerNorm(c.n_embd, eps=1e-5), GPT2MLP(c)

    def forward(self, hidden_states):
        residual = hidden_states
        hidden_states = self.attn(self.ln_1(hidden_states)) + residual
        return hidden_states + self.mlp(self.ln_2(hidden_states))


class GPT2Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config = c
        self.wte, self.wpe = nn.Embedding(c.vocab_size, c.n_embd), nn.Embedding(c.n_positions, c.n_embd)
        self.h = nn.ModuleList(GPT2Block(c) for _ in range(c.n_layer))
        self.ln_f = nn.LayerNorm(c.n_embd, eps=1e-5)

    def forward(self, input_ids):
        x = self.wte(input_ids) + self.wpe(torch.arange(input_ids.shape[1], device=input_ids.device)[None])
        for block in self.h:
            x = block(x)
        return self.ln_f(x)


class GPT2LMHeadModel(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config, self.transformer = c, GPT2Model(c)
        self.lm_head = nn.Linear(c.n_embd, c.vocab_size, bias=False)
        self.lm_head.weight = self.transformer.wte.weight

    def forward(self, input_ids, labels):
        return loss_of(self.lm_head(self.transformer(input_ids)), labels)


class RMSNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)).to(x.dtype)


class Rotary(nn.Module):
    def __init__(self, c):
        super().__init__()
        size = c.hidden_size // c.num_attention_heads
        self.register_buffer("inv_freq", c.rope_theta ** (-torch.arange(0, size, 2).float() / size), persistent=False)

    def forward(self, length):
        angle = torch.arange(length)[:, None].float() * self.inv_freq
        angle = torch.cat([angle, angle], -1)
        return angle.cos(), angle.sin()


def turned(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class LlamaAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.size = c.hidden_size // c.num_attention_heads
        kv = self.size * c.num_key_value_heads
        self.q_proj, self.k_proj = nn.Linear(c.hidden_size, c.hidden_size, bias=False), nn.Linear(c.hidden_size, kv, bias=False)
        self.v_proj, self.o_proj = nn.Linear(c.hidden_size, kv, bias=False), nn.Linear(c.hidden_size, c.hidden_size, bias=False)

    def forward(self, x, cos, sin):
        q, k, v = (p(x).view(*x.shape[:2], -1, self.size).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        return self.o_proj(attend_heads(turned(q, cos, sin), turned(k, cos, sin), v, True))


class LlamaMLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(c.hidden_size, c.intermediate_size, bias=False) for _ in range(2))
        self.down_proj, self.act_fn = nn.Linear(c.intermediate_size, c.hidden_size, bias=False), nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class MixtralExpert(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.w1, self.w3 = (nn.Linear(c.hidden_size, c.intermediate_size, bias=False) for _ in range(2))
        self.w2 = nn.Linear(c.intermediate_size, c.hidden_size, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


def routed(x, gate, top, expert):
    """Each token through its best experts, shared out by their softmax."""
    flat = x.view(-1, x.shape[-1])
    weight, chosen = torch.softmax(gate(flat).float(), -1).topk(top, -1)
    weight = (weight / weight.sum(-1, keepdim=True)).to(x.dtype)
    out = torch.zeros_like(flat)
    for e in range(gate.weight.shape[0]):
        token, slot = (chosen == e).nonzero(as_tuple=True)
        if len(token):
            out = out.index_add(0, token, weight[token, slot, None] * expert(e, flat[token]))
    return out.view(x.shape)


class MixtralMoe(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.top, self.gate = c.num_experts_per_tok, nn.Linear(c.hidden_size, c.num_local_experts, bias=False)
        self.experts = nn.ModuleList(MixtralExpert(c) for _ in range(c.num_local_experts))

    def forward(self, x):
        return routed(x, self.gate, self.top, lambda e, rows: self.experts[e](rows))


class PackedExperts(nn.Module):
    """All experts in two parameters, as since transformers 5."""

    def __init__(self, c):
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.empty(c.num_local_experts, 2 * c.intermediate_size, c.hidden_size))
        self.down_proj = nn.Parameter(torch.empty(c.num_local_experts, c.hidden_size, c.intermediate_size))

    def forward(self, e, rows):
        gate, up = F.linear(rows, self.gate_up_proj[e]).chunk(2, -1)
        return F.linear(F.silu(gate) * up, self.down_proj[e])


class PackedMoe(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.top, self.gate, self.experts = c.num_experts_per_tok, nn.Linear(c.hidden_size, c.num_local_experts, bias=False), PackedExperts(c)

    def forward(self, x):
        return routed(x, self.gate, self.top, self.experts)


class LlamaLayer(nn.Module):
    def __init__(self, c, packed):
        super().__init__()
        self.self_attn = LlamaAttention(c)
        if c.model_type == "llama":
            self.mlp = LlamaMLP(c)
        elif packed:
            self.mlp = PackedMoe(c)
        else:
            self.block_sparse_moe = MixtralMoe(c)
        self.input_layernorm, self.post_attention_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps), RMSNorm(c.hidden_size, c.rms_norm_eps)

    def forward(self, hidden_states, cos, sin):
        residual = hidden_states
        hidden_states = residual + self.self_attn(self.input_layernorm(hidden_states), cos, sin)
        residual = hidden_states
        inner = self.post_attention_layernorm(hidden_states)
        return residual + (self.mlp if hasattr(self, "mlp") else self.block_sparse_moe)(inner)


class LlamaModel(nn.Module):
    def __init__(self, c, packed):
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(LlamaLayer(c, packed) for _ in range(c.num_hidden_layers))
        self.norm, self.rotary_emb = RMSNorm(c.hidden_size, c.rms_norm_eps), Rotary(c)

    def forward(self, input_ids):
        x = self.embed_tokens(input_ids)
        cos, sin = (a.to(x.dtype) for a in self.rotary_emb(input_ids.shape[1]))
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)


class LlamaForCausalLM(nn.Module):
    """LLaMA, and Mixtral, whose config says so."""

    def __init__(self, c, packed=False):
        super().__init__()
        self.config, self.model = c, LlamaModel(c, packed)
        self.lm_head = nn.Linear(c.hidden_size, c.vocab_size, bias=False)

    def forward(self, input_ids, labels):
        return loss_of(self.lm_head(self.model(input_ids)), labels)


def named(**children):
    """A module that holds others under names with dots."""
    root = nn.Module()
    for path, child in children.items():
        add(root, path.replace("__", "."), child)
    return root


def add(root, path, child):
    *folders, last = path.split(".")
    for folder in folders:
        if not hasattr(root, folder):
            root.add_module(folder, nn.Module())
        root = getattr(root, folder)
    if isinstance(child, nn.Parameter):
        root.register_parameter(last, child)
    else:
        root.add_module(last, child)


class ViTLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        w = c.hidden_size
        self.heads, self.act = c.num_attention_heads, nn.GELU()
        self.attention = named(attention__query=nn.Linear(w, w), attention__key=nn.Linear(w, w), attention__value=nn.Linear(w, w), output__dense=nn.Linear(w, w))
        self.intermediate, self.output = named(dense=nn.Linear(w, c.intermediate_size)), named(dense=nn.Linear(c.intermediate_size, w))
        self.layernorm_before, self.layernorm_after = (nn.LayerNorm(w, eps=c.layer_norm_eps) for _ in range(2))

    def forward(self, hidden_states):
        h = self.layernorm_before(hidden_states)
        a = self.attention.attention
        hidden_states = self.attention.output.dense(attend(a.query(h), a.key(h), a.value(h), self.heads, False)) + hidden_states
        return self.output.dense(self.act(self.intermediate.dense(self.layernorm_after(hidden_states)))) + hidden_states


class ViTForImageClassification(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config, w = c, c.hidden_size
        n = (c.image_size // c.patch_size) ** 2
        self.vit = named(embeddings__patch_embeddings__projection=nn.Conv2d(c.num_channels, w, c.patch_size, c.patch_size), layernorm=nn.LayerNorm(w, eps=c.layer_norm_eps))
        self.vit.embeddings.cls_token = nn.Parameter(torch.zeros(1, 1, w))
        self.vit.embeddings.position_embeddings = nn.Parameter(torch.zeros(1, n + 1, w))
        add(self.vit, "encoder.layer", nn.ModuleList(ViTLayer(c) for _ in range(c.num_hidden_layers)))
        self.classifier = nn.Linear(w, len(c.id2label))

    def forward(self, pixel_values, labels):
        e = self.vit.embeddings
        x = e.patch_embeddings.projection(pixel_values).flatten(2).transpose(1, 2)
        x = torch.cat([e.cls_token.expand(x.shape[0], -1, -1), x], 1) + e.position_embeddings
        for layer in self.vit.encoder.layer:
            x = layer(x)
        return loss_of(self.classifier(self.vit.layernorm(x)[:, 0]), labels)


GPT2 = Config(model_type="gpt2", n_layer=3, n_embd=64, n_head=4, n_positions=32, vocab_size=211, layer_norm_epsilon=1e-5)
LLAMA = Config(model_type="llama", num_hidden_layers=3, hidden_size=64, num_attention_heads=4, num_key_value_heads=2, intermediate_size=160, vocab_size=211,
               max_position_embeddings=32, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False)
MIXTRAL = Config(LLAMA, model_type="mixtral", num_local_experts=4, num_experts_per_tok=2, intermediate_size=96)
VIT = Config(model_type="vit", num_hidden_layers=3, hidden_size=64, num_attention_heads=4, intermediate_size=128, image_size=16, patch_size=4, num_channels=3,
             layer_norm_eps=1e-12, hidden_act="gelu", qkv_bias=True, id2label={str(i): str(i) for i in range(11)}, label2id={str(i): i for i in range(11)})


def gpt2(**more):
    return GPT2LMHeadModel(Config(GPT2, **more))


def llama(**more):
    return LlamaForCausalLM(Config(LLAMA, **more))


def mixtral(packed=False, **more):
    return LlamaForCausalLM(Config(MIXTRAL, **more), packed)


def vit(**more):
    return ViTForImageClassification(Config(VIT, **more))


def holding(tensors, dtype=torch.float32, shape=None):
    """A module with a parameter for each tensor: name, shape."""
    root = nn.Module()
    for t in tensors:
        add(root, t["name"], nn.Parameter(torch.empty(t["shape"], dtype=dtype)))
    return root
