#!/usr/bin/env python3
"""The numbers of variants.json, computed by the real classes of transformers 4.57.6.

    python3 tests/models/witness.py CHECKOUT [--write]

CHECKOUT is a checkout of huggingface/transformers at v4.57.6; PyTorch is needed, transformers' own dependencies are not: only the
configuration and modeling files are run, everything around them (hub, tokenizers, caches, kernels) is replaced by stand-ins.
Without --write the numbers of the file are verified. To add a case, add its "family", "config" and "tokens" and run with --write."""
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import json
import os
import pathlib
import sys
import types

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as functional

SOURCE = os.path.join(sys.argv[1], "src", "transformers") if len(sys.argv) > 1 else sys.exit(__doc__)
CASES = pathlib.Path(__file__).with_name("variants.json")


# ---- stand-ins


class Anything:
    """Takes the place of any name that the modeling files import and these tests never run."""

    def __init__(self, *args, **kwargs):
        pass

    def __call__(self, *args, **kwargs):
        one = len(args) == 1 and not kwargs and callable(args[0]) and not isinstance(args[0], Anything)
        return args[0] if one else self  # as a decorator it leaves things as they are

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __getitem__(self, key):
        return Anything()

    def __or__(self, other):
        return self

    __ror__ = __add__ = __or__

    def __mro_entries__(self, bases):
        return (object,)

    def __bool__(self):
        return False

    def __iter__(self):
        return iter(())


class Config:
    attribute_map = {}
    DEFAULTS = dict(pad_token_id=None, bos_token_id=None, eos_token_id=None, tie_word_embeddings=True, is_decoder=False,
                    add_cross_attention=False, output_attentions=False, output_hidden_states=False, use_return_dict=True,
                    is_encoder_decoder=False, chunk_size_feed_forward=0, use_cache=False, num_labels=2, torchscript=False)

    def __init__(self, **kwargs):
        for key, value in self.DEFAULTS.items():
            if key not in kwargs and not hasattr(self, key):
                setattr(self, key, value)
        for key, value in kwargs.items():
            setattr(self, key, value)
        self._attn_implementation = "eager"

    def __setattr__(self, key, value):
        object.__setattr__(self, type(self).attribute_map.get(key, key), value)

    def __getattr__(self, key):
        target = type(self).attribute_map.get(key)
        if target is None:
            raise AttributeError(key)
        return object.__getattribute__(self, target)

    def get_text_config(self, *args, **kwargs):
        return self


class PreTrainedModel(nn.Module):
    gradient_checkpointing = False
    dtype = torch.float32
    device = torch.device("cpu")

    def __init__(self, config, *args, **kwargs):
        super().__init__()
        self.config = config

    def post_init(self):
        pass

    def get_head_mask(self, mask, layers, *args):
        return [None] * layers

    def get_extended_attention_mask(self, mask, shape, *args, **kwargs):
        return torch.zeros(mask.shape[0], 1, 1, mask.shape[1])

    def invert_attention_mask(self, mask):
        return torch.zeros(mask.shape[0], 1, 1, mask.shape[1])

    def warn_if_padding_and_no_attention_mask(self, *args):
        pass


class Conv1D(nn.Module):
    def __init__(self, nf, nx):
        super().__init__()
        self.nf = nf
        self.weight = nn.Parameter(torch.zeros(nx, nf))
        self.bias = nn.Parameter(torch.zeros(nf))

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(x.size()[:-1] + (self.nf,))


class LayerNorm(nn.LayerNorm):  # torch 1.13 knows no bias=False
    def __init__(self, *args, bias=True, **kwargs):
        super().__init__(*args, **kwargs)
        if not bias:
            self.register_parameter("bias", None)


class Output(dict):
    def __init__(self, *args, **kwargs):
        super().__init__(**kwargs)
        self.__dict__.update(kwargs)

    def __getattr__(self, key):
        if key.startswith("__"):
            raise AttributeError(key)
        return None

    def __getitem__(self, key):
        return list(self.values())[key] if isinstance(key, int) else super().__getitem__(key)


def causal_mask(config=None, input_embeds=None, window=None, **kwargs):
    n = torch.arange(input_embeds.shape[1])
    seen = n[None, :] <= n[:, None]
    if window:
        seen = seen & (n[None, :] > n[:, None] - window)
    mask = torch.where(seen, 0.0, torch.finfo(torch.float32).min)
    return mask[None, None].expand(input_embeds.shape[0], 1, *mask.shape)


def window_mask(config=None, **kwargs):
    return causal_mask(config, window=config.sliding_window, **kwargs)


def decorator(*args, **kwargs):
    return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else lambda f: f


class Silent:
    def __getattr__(self, name):
        return lambda *args, **kwargs: None


def empty(name):
    return type(name, (), {})


NAMES = dict(
    PretrainedConfig=Config, PreTrainedConfig=Config, PreTrainedModel=PreTrainedModel, GradientCheckpointingLayer=type("Layer", (nn.Module,), {}),
    create_causal_mask=causal_mask, create_sliding_window_causal_mask=window_mask, ALL_ATTENTION_FUNCTIONS={}, ModelOutput=Output,
    AttentionMaskConverter=type("Converter", (), {"_ignore_causal_mask_sdpa": staticmethod(lambda *a, **k: False)}),
    auto_docstring=decorator, can_return_tuple=decorator, check_model_inputs=decorator, deprecate_kwarg=lambda *a, **k: decorator,
    use_kernel_forward_from_hub=lambda *a, **k: decorator, layer_type_validation=lambda *a, **k: None, Conv1D=Conv1D,
    apply_chunking_to_forward=lambda f, size, dim, *x: f(*x), GenerationMixin=empty("Generation"), Cache=empty("Cache"),
    DynamicCache=empty("Dynamic"), EncoderDecoderCache=empty("EncoderDecoder"), StaticCache=empty("Static"), OnnxConfig=object,
    OnnxConfigWithPast=object, OnnxSeq2SeqConfigWithPast=object, PatchingSpec=object, GenericForSequenceClassification=empty("A"),
    GenericForTokenClassification=empty("B"), GenericForQuestionAnswering=empty("C"), is_torch_available=lambda: True, LossKwargs=dict,
    FlashAttentionKwargs=dict, TransformersKwargs=dict)


class StandInModule(types.ModuleType):
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if self.__name__ == "transformers.modeling_outputs":
            return type(name, (Output,), {})
        if name in NAMES:
            return NAMES[name]
        return (lambda *args, **kwargs: False) if name.startswith("is_") else Anything()


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        top, last = name.split(".")[0], name.split(".")[-1]
        if top not in ("transformers", "tokenizers", "huggingface_hub", "packaging", "filelock"):
            return None
        real = name in ("transformers.modeling_rope_utils", "transformers.activations") or (
            name.startswith("transformers.models.") and last.startswith(("modeling_", "configuration_")))
        file = os.path.join(SOURCE, *name.split(".")[1:]) + ".py"
        if real and os.path.exists(file):
            return importlib.util.spec_from_file_location(name, file)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return StandInModule(spec.name)

    def exec_module(self, module):
        pass


def install():
    sys.meta_path.insert(0, Finder())
    nn.LayerNorm = torch.nn.LayerNorm = LayerNorm
    torch.compiler = types.SimpleNamespace(disable=decorator, is_compiling=lambda: False)
    utils = importlib.import_module("transformers.utils")
    utils.logging = sys.modules["transformers.utils.logging"] = types.ModuleType("transformers.utils.logging")
    utils.logging.get_logger = lambda *args: Silent()


# ---- one case

CLASSES = dict(gpt2="GPT2", bert="Bert", roberta="Roberta", llama="Llama", mistral="Mistral", qwen2="Qwen2", qwen3="Qwen3", gemma="Gemma",
               gemma2="Gemma2", gemma3_text="Gemma3", phi="Phi", phi3="Phi3", gpt_neox="GPTNeoX", gptj="GPTJ", falcon="Falcon", opt="OPT",
               bloom="Bloom", granite="Granite", olmo="Olmo", olmo2="Olmo2", stablelm="StableLm", cohere="Cohere", starcoder2="Starcoder2",
               mixtral="Mixtral", deepseek_v2="DeepseekV2", deepseek_v3="DeepseekV3", t5="T5", vit="ViT")


def make_model(family, config):
    module = "gemma3" if family == "gemma3_text" else family
    configuration = importlib.import_module(f"transformers.models.{module}.configuration_{module}")
    modeling = importlib.import_module(f"transformers.models.{module}.modeling_{module}")
    name = CLASSES[family]
    settings = getattr(configuration, name + ("TextConfig" if family == "gemma3_text" else "Config"))(
        **{k: v for k, v in config.items() if k != "model_type"})
    settings._attn_implementation = "eager"
    head = {"bert": "ForMaskedLM", "roberta": "ForMaskedLM", "gpt2": "LMHeadModel", "t5": "ForConditionalGeneration",
            "vit": "ForImageClassification"}.get(family, "ForCausalLM")
    return getattr(modeling, name + head)(settings).eval()


def bits(name, count):
    """splitmix64 of (FNV-1a of the name, index), from -1 to 1: as in families_test.cpp."""
    h = 0xcbf29ce484222325
    for c in name.encode():
        h = ((h ^ c) * 0x100000001b3) % 2**64
    with np.errstate(over="ignore"):
        z = np.uint64(h) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9e3779b97f4a7c15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xbf58476d1ce4e5b9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94d049bb133111eb)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(40)).astype(np.float64) / 2**23 - 1


def corrections(model):
    """Buffers that a file holds and training does not touch: what DeepSeek-V3 adds to the scores of its experts."""
    return [(name, b) for name, b in model.named_buffers() if name.endswith("e_score_correction_bias")]


def fill(model, family):
    for name, p in [*model.named_parameters(), *corrections(model)]:
        x = torch.tensor(bits(name, p.numel())).reshape(p.shape).float()
        gain = name.endswith("weight") and ("norm" in name.lower() or "ln_" in name)
        centre = 1.0 if gain and not family.startswith("gemma") else 0.0
        with torch.no_grad():
            p.copy_(centre + (0.3 if gain or p.dim() == 1 else 0.5) * x)


def tie(model, family):
    head = {"bert": "cls.predictions.decoder", "roberta": "lm_head.decoder", "gpt_neox": "embed_out"}.get(family, "lm_head")
    modules = dict(model.named_modules())
    if model.config.tie_word_embeddings and family != "vit":
        tables = [p for n, p in model.named_parameters() if p.dim() == 2 and p.shape[0] == model.config.vocab_size and n != head + ".weight"]
        modules[head].weight = tables[0]
    if family in ("bert", "roberta"):
        owner = modules["cls.predictions" if family == "bert" else "lm_head"]
        owner.decoder.bias = owner.bias


def stacks(model, family):
    if family == "t5":
        return {"encoder": model.encoder.block, "decoder": model.decoder.block}
    return {"": next(m for n, m in model.named_modules()
                     if isinstance(m, nn.ModuleList) and len(m) == model.config.num_hidden_layers and "norms" not in n)}


def watch(blocks):
    """Collects the residual stream: before the first block and after each."""
    stream = []

    def keep(x):
        if not x.requires_grad:
            x.requires_grad_()
        x.retain_grad()
        stream.append(x)

    def wrap(block, first):
        forward = block.forward

        def watched(*args, **kwargs):
            if first:
                keep(args[0] if args else kwargs["hidden_states"])
            out = forward(*args, **kwargs)
            keep(out[0] if isinstance(out, tuple) else out)
            return out

        block.forward = watched

    for i, block in enumerate(blocks):
        wrap(block, i == 0)
    return stream


def cosine(x):
    x = x / x.norm(dim=-1, keepdim=True).clamp_min(1e-30)
    gram, n = x @ x.transpose(1, 2), x.shape[1]
    return ((gram.sum((1, 2)) - gram.diagonal(dim1=1, dim2=2).sum(-1)) / (n * (n - 1))).mean().item()


def short(x):
    return float(f"{x:.7g}")


def run(case):
    family = case["family"]
    model = make_model(family, case["config"])
    if family == "t5":
        model = model.double()  # scores are not scaled: softmaxes so sharp that floats lose digits
    fill(model, family)
    tie(model, family)
    streams = {name: watch(blocks) for name, blocks in stacks(model, family).items()}
    options = {"use_cache": False} if "use_cache" in inspect.signature(model.forward).parameters else {}
    if family == "vit":
        targets, side = torch.tensor(case["labels"]), case["config"]["image_size"]
        pixels = bits("pixels", len(targets) * case["config"]["num_channels"] * side * side)
        inputs = [torch.tensor(pixels).float().reshape(len(targets), -1, side, side)]
    else:
        tokens = torch.tensor(case["tokens"])
        inputs, targets = [tokens[:, :-1]], tokens[:, :-1] if family in ("bert", "roberta") else tokens[:, 1:]
    if family == "t5":
        options["decoder_input_ids"], inputs = inputs[0], [torch.tensor(case["encoder_tokens"])]
    if family in ("bloom", "opt"):
        options["attention_mask"] = torch.ones_like(inputs[0])
    logits = model(*inputs, **options)["logits"]
    loss = functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))
    loss.backward()

    def numbers(stream):
        return dict(m2=[short(x.pow(2).mean().item()) for x in stream], g2=[short(x.grad.pow(2).sum().item()) for x in stream],
                    cos=[short(cosine(x.detach())) for x in stream])

    return dict(loss=loss.item(),
                gradients={n: short(p.grad.norm().item()) if p.grad is not None else 0.0
                           for n, p in [*model.named_parameters(), *corrections(model)]},
                **{f"{name}_stream".lstrip("_"): numbers(stream) for name, stream in streams.items()})


def main():
    install()
    cases = json.loads(CASES.read_text())
    wrong = 0
    for name, case in cases.items():
        new = run(case)
        if "--write" in sys.argv:
            case.update(new)
        elif abs(new["loss"] - case["loss"]) > 1e-5 or new["gradients"].keys() != case["gradients"].keys():
            wrong += 1
            print(f"{name}: loss {new['loss']}, the file says {case['loss']}")
    if "--write" in sys.argv:
        CASES.write_text("{\n" + ",\n".join(f" {json.dumps(n)}: {json.dumps(c)}" for n, c in cases.items()) + "\n}\n")
    print(f"{len(cases) - wrong} passed, {wrong} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
