"""GPT-2, LLaMA, Mixtral, ViT, T5 and BART as transformers writes them: the same modules, the same names, the same order of work. Written out here because
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


class T5Attention(nn.Module):
    def __init__(self, c, causal, table, cross=False):
        super().__init__()
        self.c, self.causal, inside = c, causal, c.num_heads * c.d_kv
        self.q, self.k, self.v = (nn.Linear(c.d_model, inside, bias=False) for _ in range(3))
        self.o = nn.Linear(inside, c.d_model, bias=False)
        if table:
            self.relative_attention_bias = nn.Embedding(c.relative_attention_num_buckets, c.num_heads)

    def bias(self, length):
        ahead = torch.arange(length)[None] - torch.arange(length)[:, None]
        n, first = self.c.relative_attention_num_buckets, 0
        if self.causal:
            ahead = -torch.min(ahead, torch.zeros_like(ahead))
        else:
            n //= 2
            first, ahead = (ahead > 0).long() * n, ahead.abs()
        exact = n // 2
        far = exact + (torch.log(ahead.float() / exact) / math.log(self.c.relative_attention_max_distance / exact) * (n - exact)).to(torch.long)
        far = torch.min(far, torch.full_like(far, n - 1))
        return self.relative_attention_bias(first + torch.where(ahead < exact, ahead, far)).permute(2, 0, 1)[None]

    def forward(self, x, memory=None, bias=None):
        read = x if memory is None else memory
        q, k, v = (p(y).view(*y.shape[:2], -1, self.c.d_kv).transpose(1, 2) for p, y in ((self.q, x), (self.k, read), (self.v, read)))
        scores = q @ k.transpose(2, 3)
        if bias is not None:
            scores = scores + bias
        if self.causal:
            scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), torch.finfo(scores.dtype).min)
        return self.o((torch.softmax(scores, -1) @ v).transpose(1, 2).flatten(2))


class T5DenseGatedActDense(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.wi_0, self.wi_1 = (nn.Linear(c.d_model, c.d_ff, bias=False) for _ in range(2))
        self.wo, self.act = nn.Linear(c.d_ff, c.d_model, bias=False), NewGELU()

    def forward(self, x):
        return self.wo(self.act(self.wi_0(x)) * self.wi_1(x))


class T5Stack(nn.Module):
    """An encoder or a decoder; both are given the same table of tokens."""

    def __init__(self, c, shared, decodes):
        super().__init__()
        self.embed_tokens, self.decodes, self.block = shared, decodes, nn.ModuleList()
        norm = lambda: RMSNorm(c.d_model, c.layer_norm_epsilon)
        for i in range(c.num_layers):
            layers = [named(SelfAttention=T5Attention(c, decodes, i == 0), layer_norm=norm())]
            layers += [named(EncDecAttention=T5Attention(c, False, False), layer_norm=norm())] if decodes else []
            layers += [named(DenseReluDense=T5DenseGatedActDense(c), layer_norm=norm())]
            self.block.append(named(layer=nn.ModuleList(layers)))
        self.final_layer_norm = norm()

    def forward(self, ids, memory=None):
        x = self.embed_tokens(ids)
        bias = self.block[0].layer[0].SelfAttention.bias(ids.shape[1])
        for block in self.block:
            first, last = block.layer[0], block.layer[-1]
            x = x + first.SelfAttention(first.layer_norm(x), bias=bias)
            if self.decodes:
                x = x + block.layer[1].EncDecAttention(block.layer[1].layer_norm(x), memory)
            x = x + last.DenseReluDense(last.layer_norm(x))
        return self.final_layer_norm(x)


class T5ForConditionalGeneration(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config, self.shared = c, nn.Embedding(c.vocab_size, c.d_model)
        self.encoder, self.decoder = T5Stack(c, self.shared, False), T5Stack(c, self.shared, True)
        self.lm_head = nn.Linear(c.d_model, c.vocab_size, bias=False)
        self.lm_head.weight = self.shared.weight

    def forward(self, input_ids, decoder_input_ids, labels):
        return loss_of(self.lm_head(self.decoder(decoder_input_ids, self.encoder(input_ids)) * self.config.d_model**-0.5), labels)


class BartAttention(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.k_proj, self.v_proj, self.q_proj, self.out_proj = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x, memory=None):
        read = x if memory is None else memory
        return self.out_proj(attend(self.q_proj(x), self.k_proj(read), self.v_proj(read), self.heads, self.causal))


class BartPositions(nn.Embedding):
    """Two rows are in front of the first position."""

    def forward(self, ids):
        return super().forward(torch.arange(2, ids.shape[1] + 2)[None])


class BartLayer(nn.Module):
    def __init__(self, c, heads, ffn, decodes):
        super().__init__()
        w = c.d_model
        self.self_attn, self.self_attn_layer_norm = BartAttention(w, heads, decodes), nn.LayerNorm(w)
        if decodes:
            self.encoder_attn, self.encoder_attn_layer_norm = BartAttention(w, heads, False), nn.LayerNorm(w)
        self.fc1, self.fc2, self.activation_fn, self.final_layer_norm = nn.Linear(w, ffn), nn.Linear(ffn, w), nn.GELU(), nn.LayerNorm(w)

    def forward(self, x, memory=None):
        x = self.self_attn_layer_norm(x + self.self_attn(x))
        if memory is not None:
            x = self.encoder_attn_layer_norm(x + self.encoder_attn(x, memory))
        return self.final_layer_norm(x + self.fc2(self.activation_fn(self.fc1(x))))


class BartStack(nn.Module):
    """Its table of tokens is a module of its own, and its weight that of the other stack."""

    def __init__(self, c, shared, decodes):
        super().__init__()
        self.embed_tokens, self.embed_positions = nn.Embedding(c.vocab_size, c.d_model), BartPositions(c.max_position_embeddings + 2, c.d_model)
        self.embed_tokens.weight = shared.weight
        side = (c.decoder_layers, c.decoder_attention_heads, c.decoder_ffn_dim) if decodes else (c.encoder_layers, c.encoder_attention_heads, c.encoder_ffn_dim)
        self.layers = nn.ModuleList(BartLayer(c, *side[1:], decodes) for _ in range(side[0]))
        self.layernorm_embedding = nn.LayerNorm(c.d_model)

    def forward(self, ids, memory=None):
        x = self.layernorm_embedding(self.embed_tokens(ids) + self.embed_positions(ids))
        for layer in self.layers:
            x = layer(x, memory)
        return x


class BartForConditionalGeneration(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config, shared = c, nn.Embedding(c.vocab_size, c.d_model)
        self.model = named(shared=shared, encoder=BartStack(c, shared, False), decoder=BartStack(c, shared, True))
        self.register_buffer("final_logits_bias", torch.zeros(1, c.vocab_size))
        self.lm_head = nn.Linear(c.d_model, c.vocab_size, bias=False)
        self.lm_head.weight = shared.weight

    def forward(self, input_ids, decoder_input_ids, labels):
        return loss_of(self.lm_head(self.model.decoder(decoder_input_ids, self.model.encoder(input_ids))) + self.final_logits_bias, labels)


GPT2 = Config(model_type="gpt2", n_layer=3, n_embd=64, n_head=4, n_positions=32, vocab_size=211, layer_norm_epsilon=1e-5)
LLAMA = Config(model_type="llama", num_hidden_layers=3, hidden_size=64, num_attention_heads=4, num_key_value_heads=2, intermediate_size=160, vocab_size=211,
               max_position_embeddings=32, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False)
MIXTRAL = Config(LLAMA, model_type="mixtral", num_local_experts=4, num_experts_per_tok=2, intermediate_size=96)
VIT = Config(model_type="vit", num_hidden_layers=3, hidden_size=64, num_attention_heads=4, intermediate_size=128, image_size=16, patch_size=4, num_channels=3,
             layer_norm_eps=1e-12, hidden_act="gelu", qkv_bias=True, id2label={str(i): str(i) for i in range(11)}, label2id={str(i): i for i in range(11)})

T5 = Config(model_type="t5", num_layers=3, d_model=64, num_heads=4, d_kv=16, d_ff=160, vocab_size=211, feed_forward_proj="gated-gelu", layer_norm_epsilon=1e-6,
            relative_attention_num_buckets=8, relative_attention_max_distance=16, tie_word_embeddings=True)
BART = Config(model_type="bart", d_model=64, encoder_layers=3, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=2, encoder_ffn_dim=128,
              decoder_ffn_dim=160, vocab_size=211, max_position_embeddings=32, activation_function="gelu", scale_embedding=False, pad_token_id=1)


def gpt2(**more):
    return GPT2LMHeadModel(Config(GPT2, **more))


def llama(**more):
    return LlamaForCausalLM(Config(LLAMA, **more))


def mixtral(packed=False, **more):
    return LlamaForCausalLM(Config(MIXTRAL, **more), packed)


def t5(**more):
    return T5ForConditionalGeneration(Config(T5, **more))


def bart(**more):
    return BartForConditionalGeneration(Config(BART, **more))


def vit(**more):
    return ViTForImageClassification(Config(VIT, **more))


def holding(tensors, dtype=torch.float32, shape=None):
    """A module with a parameter for each tensor: name, shape."""
    root = nn.Module()
    for t in tensors:
        add(root, t["name"], nn.Parameter(torch.empty(t["shape"], dtype=dtype)))
    return root
