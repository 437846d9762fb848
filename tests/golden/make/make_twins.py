#!/usr/bin/env python3
"""Converts random models to GGUF with llama.cpp's own converter: make_twins.py LLAMA_CPP_DIR ../data/models ../data/models-gguf NAME...

The vocabulary is a stub (tokens t0 to tN), whatever the class. Matrices that bfloat16 would round stay in float32."""
import json
import logging
import sys
import tempfile
from pathlib import Path

llama, models, out = (Path(p) for p in sys.argv[1:4])
sys.path[:0] = [str(llama), str(llama / "gguf-py")]

import conversion  # noqa: E402
import gguf  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from conversion import ModelBase, ModelType, get_model_architecture, get_model_class  # noqa: E402

LOAD_HPARAMS = ModelBase.load_hparams


def nemotron(config, old):
    """The converter takes the older spelling, and the mere mention of experts for a model that has them."""
    config.clear()
    config |= {**old, "mamba_d_head": old["mamba_head_dim"]}
    if "E" not in config["hybrid_override_pattern"]:
        del config["num_experts_per_tok"]


# What the converter expects of config.json and transformers 5 does not write: model type -> change(config, config_v4).
ADAPT = {"cohere2": lambda config, old: config.update(rotary_pct=1.0),
         "glm": lambda config, old: config.update(seq_length=old["max_position_embeddings"]),
         "hunyuan_v1_moe": lambda config, old: config.update(old, rope_parameters=config["rope_parameters"]),
         "mpt": lambda config, old: config.update(architectures=["MPTForCausalLM"]),
         "nemotron_h": nemotron}


def convert(folder, target, file_type, exact=()):
    """Writes target; tensors in `exact` are kept in float32."""
    adapted = Path(tempfile.mkdtemp())
    config = json.loads((folder / "config.json").read_text())
    (adapted / "config.json").write_text(json.dumps(config))
    for file in ("model.safetensors", "generation_config.json"):
        if (folder / file).exists():
            (adapted / file).write_bytes((folder / file).read_bytes())
    # for classes that look into it; the vocabulary comes from stub()
    size = config["vocab_size"]
    (adapted / "tokenizer.json").write_text(json.dumps({"model": {"type": "BPE", "vocab": {f"t{i}": i for i in range(size)}, "merges": []}, "added_tokens": []}))

    def adapted_hparams(*arguments, **named):
        hparams = LOAD_HPARAMS(*arguments, **named)
        ADAPT.get(hparams["model_type"], lambda *_: None)(hparams, json.loads((folder / "config_v4.json").read_text()))
        return hparams

    ModelBase.load_hparams = staticmethod(adapted_hparams)
    with torch.inference_mode():
        hparams = ModelBase.load_hparams(adapted, False)
        kind = get_model_class(get_model_architecture(hparams, ModelType.TEXT))
        kind.no_mtp = not hparams.get("num_nextn_predict_layers")
        model = kind(adapted, file_type, target, model_name="golden")
        writer, force = model.gguf_writer, model.tensor_force_quant

        def stub():
            writer.add_tokenizer_model("gpt2")
            writer.add_tokenizer_pre("gpt-2")
            writer.add_token_list([f"t{i}" for i in range(size)])
            writer.add_token_types([gguf.TokenType.NORMAL] * size)
            writer.add_token_merges(["t 0"])

        model.set_vocab = stub
        model.tensor_force_quant = lambda name, new_name, bid, dims: gguf.GGMLQuantizationType.F32 if new_name in exact else force(name, new_name, bid, dims)
        model.write()


def tensors(path):
    return {t.name: np.asarray(gguf.quants.dequantize(t.data, t.tensor_type), np.float32) for t in gguf.GGUFReader(path).tensors}


def main():
    logging.disable(logging.INFO)
    conversion.load_all_models()
    for name in sys.argv[4:]:
        exact, target = Path(tempfile.mkdtemp()) / "exact.gguf", out / f"{name}.gguf"
        convert(models / name, exact, gguf.LlamaFileType.ALL_F32)
        convert(models / name, target, gguf.LlamaFileType.MOSTLY_BF16)
        wanted, got = tensors(exact), tensors(target)
        rounded = [k for k in wanted if wanted[k].tobytes() != got[k].tobytes()]
        if rounded:
            convert(models / name, target, gguf.LlamaFileType.MOSTLY_BF16, rounded)
        print(name, target.stat().st_size, "bytes", f"in float32: {rounded}" if rounded else "")


if __name__ == "__main__":
    main()
