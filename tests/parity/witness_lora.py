#!/usr/bin/python3
"""The independent witness of adapters: files as the peft library writes them, and the model with B A added to its matrices.

    witness_lora.py make DIR      new cases with their golden numbers, in DIR/<case>/

A case is one of witness.py's with two more files: adapter_config.json and adapter_model.safetensors, and with
gradients.safetensors holding those of A and B alone. What a matrix becomes is what peft's own merge makes of it:
W + c B A, transposed where the matrix is a Conv1D (fan_in_fan_out); c = lora_alpha / r, or lora_alpha / sqrt(r) (use_rslora).
"""

import json
import math
import pathlib
import sys

import torch

from witness import ARCHITECTURE, MODELS, Trace, describe, read_tokens, shapes, write_json, write_safetensors

# Each reaches what the others do not: a fused Conv1D and modules named in short; three matrices of a block and rsLoRA.
CASES = {
    "lora-gpt2": dict(
        batch=2, tokens=9, r=3, lora_alpha=6, use_rslora=False, target_modules=["c_attn", "mlp.c_proj"],
        config=dict(model_type="gpt2", n_embd=16, n_layer=2, n_head=4, n_inner=None, n_positions=16, vocab_size=31,
                    activation_function="gelu_new", tie_word_embeddings=True)),
    "lora-llama": dict(
        batch=1, tokens=12, r=2, lora_alpha=5, use_rslora=True, target_modules=["q_proj", "v_proj", "down_proj"],
        config=dict(model_type="llama", hidden_size=20, num_hidden_layers=2, num_attention_heads=4,
                    num_key_value_heads=2, head_dim=6, intermediate_size=28, hidden_act="silu",
                    max_position_embeddings=16, vocab_size=29, rms_norm_eps=1e-6, rope_theta=10000.0,
                    tie_word_embeddings=False, attention_bias=False, mlp_bias=False)),
}


def make(directory):
    for seed, (case, settings) in enumerate(CASES.items()):
        settings = dict(settings)
        config = {"architectures": [ARCHITECTURE[settings["config"]["model_type"]]], **settings.pop("config")}
        batch, length = settings.pop("batch"), settings.pop("tokens")
        conv1d = config["model_type"] == "gpt2"
        generator = torch.Generator().manual_seed(52000 + seed)
        weights, adapters, targets = {}, {}, {}
        for name, shape in shapes(config):
            noise = torch.randn(shape, generator=generator)
            weights[name] = 0.15 * noise if len(shape) == 2 else 0.1 * noise + (0 if name.endswith(".bias") else 1)
            module, kind = name.rsplit(".", 1)
            if kind != "weight" or not any(module.endswith("." + t) for t in settings["target_modules"]):
                continue
            inputs, outputs = shape if conv1d else shape[::-1]
            stem = f"base_model.model.{module}."
            adapters[stem + "lora_A.weight"] = 0.4 * torch.randn((settings["r"], inputs), generator=generator)
            adapters[stem + "lora_B.weight"] = 0.1 * torch.randn((outputs, settings["r"]), generator=generator)
            targets[name] = stem

        path = pathlib.Path(directory) / case
        path.mkdir(parents=True, exist_ok=True)
        (path / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        tokens = torch.randint(config["vocab_size"], (batch, length + 1), generator=generator)
        (path / "tokens.txt").write_text("".join(" ".join(map(str, row)) + "\n" for row in tokens.tolist()))
        write_safetensors(path / "model.safetensors", {name: w.numpy() for name, w in weights.items()})
        write_safetensors(path / "adapter_model.safetensors", {name: w.numpy() for name, w in adapters.items()})
        write_json(path / "adapter_config.json",
                   {"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": case, "bias": "none",
                    "fan_in_fan_out": conv1d, "lora_dropout": 0.0, "modules_to_save": None, "rank_pattern": {},
                    "use_dora": False, **settings})

        scale = settings["lora_alpha"] / (math.sqrt(settings["r"]) if settings["use_rslora"] else settings["r"])
        trained = {name: w.double().requires_grad_(True) for name, w in adapters.items()}
        weight = {name: w.double() for name, w in weights.items()}
        for name, stem in targets.items():
            delta = scale * trained[stem + "lora_B.weight"] @ trained[stem + "lora_A.weight"]
            weight[name] = weight[name] + (delta.T if conv1d else delta)
        first = "transformer.wte.weight" if conv1d else "model.embed_tokens.weight"
        weight[first] = weight[first].requires_grad_(True)  # so that every node has a gradient to look at

        tokens = read_tokens(path / "tokens.txt")
        trace = Trace()
        logits = MODELS[config["model_type"]](config, weight, tokens[:, :-1], trace)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        write_json(path / "reference.json", {
            "model_type": config["model_type"], "dtype": "float64", "torch": torch.__version__, "loss": loss.item(),
            "nodes": {name: describe(x.detach(), x.grad) for name, x in trace.nodes.items()},
            "attention": trace.attention, "logits": logits.tolist()})
        write_safetensors(path / "gradients.safetensors", {name: w.grad.numpy() for name, w in trained.items()})
        print(f"{path}: loss {loss.item():.6f}, {len(trained)} tensors of adapters")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] != "make":
        sys.exit(__doc__)
    torch.set_num_threads(1)
    make(sys.argv[2])
