#!/usr/bin/env python3
"""Writes DATA_DIR/encoders/NAME/ as GGUF files with the names, keys and types of llama.cpp's converter: make_encoders_gguf.py DATA_DIR

Writes DATA_DIR/encoders-gguf/NAME.gguf and index.json. The expected values are those of encoders/NAME, except where index.json gives others.
"""
import json
import re
import string
import sys
from pathlib import Path

import gguf
from gguf import GGMLQuantizationType as Type
from gguf import MODEL_ARCH as Arch
from gguf import TokenType as Kind
from safetensors.torch import load_file

MODELS = {"bert": Arch.BERT, "bert_cross": Arch.BERT, "xlm_roberta": Arch.BERT, "xlm_roberta_cross": Arch.BERT, "nomic_bert": Arch.NOMIC_BERT, "modernbert": Arch.MODERN_BERT,
          "modernbert_cross": Arch.MODERN_BERT, "qwen3_embedding": Arch.QWEN3}
POOLING = {"pooling_mode_mean_tokens": gguf.PoolingType.MEAN, "pooling_mode_cls_token": gguf.PoolingType.CLS, "pooling_mode_lasttoken": gguf.PoolingType.LAST}
ALWAYS_F32 = ("position_embd.weight", "token_types.weight")
CHARACTERS = string.ascii_letters + string.digits + string.punctuation


def first(config, *names):
    return next((config[name] for name in names if config.get(name) is not None), None)


def add_parameters(writer, folder, config, file_type):
    offset = config["pad_token_id"] + 1 if config["model_type"] == "xlm-roberta" else 0
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name(folder.name)
    writer.add_block_count(first(config, "num_hidden_layers", "n_layer"))
    writer.add_context_length(first(config, "max_position_embeddings", "n_positions") - offset)
    writer.add_embedding_length(first(config, "hidden_size", "n_embd"))
    writer.add_feed_forward_length(first(config, "intermediate_size", "n_inner"))
    writer.add_head_count(first(config, "num_attention_heads", "n_head"))
    if heads := config.get("num_key_value_heads"):
        writer.add_head_count_kv(heads)
    if base := first(config, "global_rope_theta", "rope_theta", "rotary_emb_base"):
        writer.add_rope_freq_base(base)
    if base := config.get("local_rope_theta"):
        writer.add_rope_freq_base_swa(base)
    if epsilon := first(config, "rms_norm_eps", "norm_eps"):
        writer.add_layer_norm_rms_eps(epsilon)
    if epsilon := first(config, "layer_norm_eps", "layer_norm_epsilon"):
        writer.add_layer_norm_eps(epsilon)
    if size := config.get("head_dim"):
        writer.add_key_length(size)
        writer.add_value_length(size)
    writer.add_file_type(file_type)
    if config["model_type"] != "qwen3":
        writer.add_causal_attention(False)
    if (path := folder / "1_Pooling/config.json").exists():
        modes = json.loads(path.read_text())
        writer.add_pooling_type(next(kind for mode, kind in POOLING.items() if modes[mode]))
    if labels := config.get("id2label"):  # also of embedding models whose configuration has a single label
        writer.add_classifier_output_labels(list(labels.values()))
    if config["model_type"] == "modernbert":
        writer.add_sliding_window(config["local_attention"])
        writer.add_sliding_window_pattern(config["global_attn_every_n_layers"])
        writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
        writer.add_vocab_size(config["vocab_size"])
        writer.add_string(f"{writer.arch}.hidden_activation", config["hidden_activation"])


def add_ends(writer, separator):
    """Every text gets the ids that start and end it; `separator` asks for one more separator between the texts of a pair."""
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(True)
    writer.add_add_sep_token(separator)


def add_vocabulary(writer, config):
    """Enough to spell any text of ASCII characters."""
    model = {"bert": "bert", "nomic_bert": "bert", "xlm-roberta": "t5", "modernbert": "gpt2", "qwen3": "gpt2"}[config["model_type"]]
    special = {"bert": ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"], "t5": ["<s>", "<pad>", "</s>", "<unk>"],
               "gpt2": ["<|im_start|>", "<|im_end|>", "[PAD]", "<|endoftext|>"] if config["model_type"] == "qwen3" else ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]}[model]
    pieces = ["Ġ", *CHARACTERS, "th"] if model == "gpt2" else ["▁"] * (model == "t5") + ["▁" + c for c in CHARACTERS if model == "t5" or c.islower() or not c.isalpha()] + list(CHARACTERS)
    pieces = (special + pieces)[:config["vocab_size"]]
    unused = [f"[unused{i}]" for i in range(len(pieces), config["vocab_size"])]
    kinds = [Kind.CONTROL] * len(special) + [Kind.NORMAL] * (len(pieces) - len(special)) + [Kind.UNUSED] * len(unused)
    if model == "t5":
        kinds[3] = Kind.UNKNOWN
    id = special.index
    if model == "bert":
        writer.add_token_type_count(config["type_vocab_size"])
    writer.add_tokenizer_model(model)
    writer.add_tokenizer_pre({"bert": "jina-v2-en", "nomic_bert": "jina-v2-en", "xlm-roberta": "default", "modernbert": "modern-bert", "qwen3": "qwen2"}[config["model_type"]])
    writer.add_token_list(pieces + unused)
    if model == "t5":
        writer.add_token_scores([0.0] * len(special) + [-float(len(piece) == 1) - 1 for piece in pieces[len(special):]] + [-10000.0] * len(unused))
    writer.add_token_types(kinds)
    if model == "gpt2":
        writer.add_token_merges(["t h"])
    if model == "t5":
        writer.add_add_space_prefix(True)
        writer.add_token_type_count(config["type_vocab_size"])
        writer.add_remove_extra_whitespaces(True)
        writer.add_bos_token_id(id("<s>"))
        writer.add_eos_token_id(id("</s>"))
        writer.add_unk_token_id(id("<unk>"))
        writer.add_sep_token_id(id("</s>"))
        writer.add_pad_token_id(id("<pad>"))
        add_ends(writer, separator=True)
    elif config["model_type"] == "qwen3":
        writer.add_eos_token_id(id("<|endoftext|>"))
        writer.add_pad_token_id(id("<|endoftext|>"))
        writer.add_add_bos_token(False)
        writer.add_add_eos_token(True)
    else:
        writer.add_unk_token_id(id("[UNK]"))
        writer.add_sep_token_id(id("[SEP]"))
        writer.add_pad_token_id(id("[PAD]"))
        writer.add_bos_token_id(id("[CLS]"))
        writer.add_eos_token_id(id("[SEP]"))
        writer.add_mask_token_id(id("[MASK]"))
        add_ends(writer, separator=config["model_type"] == "modernbert")


def add_tensors(writer, arch, config, weights, type):
    names = gguf.get_tensor_name_map(arch, first(config, "num_hidden_layers", "n_layer"))
    for name, value in sorted(weights.items()):
        name = re.sub(r"^(bert|roberta|model)\.", "", name)
        if name.endswith("position_ids") or name.startswith("pooler."):  # the converter drops poolers, also of classifiers
            continue
        if re.fullmatch(r"classifier\.(weight|bias)", name):
            name = name.replace("classifier", "classifier.out_proj")
        if config["model_type"] == "xlm-roberta" and "position_embeddings" in name:
            value = value[config["pad_token_id"] + 1:]
        new = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert new, name
        chosen = Type.F32 if value.ndim == 1 or new.endswith("_norm.weight") or new in ALWAYS_F32 else type
        writer.add_tensor(new, gguf.quants.quantize(value.float().numpy(), chosen), raw_dtype=chosen)


def main():
    data = Path(sys.argv[1])
    out = data / "encoders-gguf"
    out.mkdir(exist_ok=True)
    index = {}
    for name, arch in MODELS.items():
        folder = data / "encoders" / name
        config, weights = json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")
        type, file_type = (Type.F32, gguf.LlamaFileType.ALL_F32) if name == "bert" else (Type.BF16, gguf.LlamaFileType.MOSTLY_BF16)
        writer = gguf.GGUFWriter(out / f"{name}.gguf", gguf.MODEL_ARCH_NAMES[arch])
        add_parameters(writer, folder, config, file_type)
        add_vocabulary(writer, config)
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        add_tensors(writer, arch, config, weights, type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        index[name] = {"architecture": writer.arch, "expected": f"encoders/{name}"}
        if name == "bert_cross":
            first_rows = [load_file(folder / "expected.safetensors")[f"hidden_{k}"][0] for k in range(3)]
            index[name] |= {"score": [(weights["classifier.weight"].float() @ row + weights["classifier.bias"].float()).tolist() for row in first_rows],
                            "score_is": "of prompts 0, 1 and 2 without the pooler, which the file lacks"}
    (out / "index.json").write_text(json.dumps(index, indent=1) + "\n")


if __name__ == "__main__":
    main()
