"""The tiny encoders and rerankers of make_encoders.py: configurations as published checkpoints spell them, and what each model is to prove."""
import copy
import re
from dataclasses import dataclass, field
from unittest import mock

import torch
import transformers
from transformers import masking_utils


@dataclass
class Spec:
    name: str
    like: str                  # the published model whose files this directory resembles
    loader: type               # the transformers class that computes the reference
    config: dict
    seed: int
    dtype: torch.dtype = torch.bfloat16
    pooling: str | None = None  # cls, mean or last; a classifier has none
    dense: tuple = ()          # widths of the dense layers after pooling
    start: int | None = None   # ids at the ends of a prompt
    end: int | None = None
    pair: bool = False         # two texts in a prompt; the second has token type 1
    position_ids: bool = False  # older checkpoints hold this buffer
    features: list = field(default_factory=list)
    ablations: dict = field(default_factory=dict)


# An ablation runs a reference model with one feature switched off and returns the hidden states and the output.

def with_config(**changes):
    return lambda reference, prompt: reference.changed(changes).run(*prompt)


def with_weights(pattern, value=0.0):
    def ablation(reference, prompt):
        other = copy.deepcopy(reference)
        found = [p for name, p in other.model.named_parameters() if re.search(pattern, name)]
        assert found, pattern
        for p in found:
            p.data.fill_(value)
        return other.run(*prompt)
    return ablation


def with_module(path, module):
    def ablation(reference, prompt):
        other = copy.deepcopy(reference)
        owner, leaf = path.rsplit(".", 1)
        setattr(other.model.get_submodule(owner), leaf, module)
        return other.run(*prompt)
    return ablation


def with_masks(**masks):
    """Replaces mask functions of the modelling file by others of masking_utils."""
    def ablation(reference, prompt):
        def adapted(function):
            return lambda **kwargs: function(**{"past_key_values": None, **kwargs})
        changes = {name: adapted(getattr(masking_utils, other)) for name, other in masks.items()}
        with mock.patch.multiple(type(reference.model).__module__, **changes):
            return reference.run(*prompt)
    return ablation


def with_pooling(kind):
    return lambda reference, prompt: reference.run(*prompt, pooling=kind)


def with_positions_from_zero(reference, prompt):
    return reference.run(*prompt, position_ids=torch.arange(len(prompt[0]))[None])


def without_types(reference, prompt):
    ids, types = prompt
    return reference.run(ids, torch.zeros_like(types))


def without_activation(reference, prompt):
    """The head of XLMRobertaForSequenceClassification calls torch.tanh."""
    with mock.patch.object(torch, "tanh", lambda x: x):
        return reference.run(*prompt)


CAUSAL = with_masks(create_bidirectional_mask="create_causal_mask")
BIDIRECTIONAL = with_masks(create_causal_mask="create_bidirectional_mask")

ONE_LABEL = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}


def bert(**more):
    return {"architectures": ["BertModel"], "attention_probs_dropout_prob": 0.1, "classifier_dropout": None, "gradient_checkpointing": False, "hidden_act": "gelu",
            "hidden_dropout_prob": 0.1, "hidden_size": 48, "initializer_range": 0.02, "intermediate_size": 96, "layer_norm_eps": 1e-12, "max_position_embeddings": 128,
            "model_type": "bert", "num_attention_heads": 3, "num_hidden_layers": 2, "pad_token_id": 0, "position_embedding_type": "absolute",
            "torch_dtype": "float32", "transformers_version": "4.30.0", "type_vocab_size": 2, "use_cache": True, "vocab_size": 256, **more}


def xlm_roberta(**more):
    return bert(**{"architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta", "bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "layer_norm_eps": 1e-5, "max_position_embeddings": 130,
                   "output_past": True, "type_vocab_size": 1, **more})


def modernbert(**more):
    return {"architectures": ["ModernBertModel"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 1, "classifier_activation": "gelu", "classifier_bias": False,
            "classifier_dropout": 0.0, "classifier_pooling": "mean", "cls_token_id": 1, "decoder_bias": True, "deterministic_flash_attn": False, "embedding_dropout": 0.0, "eos_token_id": 2,
            "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "gradient_checkpointing": False, "hidden_activation": "gelu", "hidden_size": 48, "initializer_cutoff_factor": 2.0,
            "initializer_range": 0.02, "intermediate_size": 64, "layer_norm_eps": 1e-5, "local_attention": 16, "local_rope_theta": 100.0, "max_position_embeddings": 160, "mlp_bias": False,
            "mlp_dropout": 0.0, "model_type": "modernbert", "norm_bias": False, "norm_eps": 1e-5, "num_attention_heads": 3, "num_hidden_layers": 4, "pad_token_id": 3,
            "position_embedding_type": "absolute", "sep_token_id": 2, "tie_word_embeddings": True, "torch_dtype": "float32", "transformers_version": "4.48.0", "vocab_size": 256, **more}


def qwen3(**more):
    return {"architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 3, "eos_token_id": 3, "head_dim": 16, "hidden_act": "silu", "hidden_size": 48,
            "initializer_range": 0.02, "intermediate_size": 96, "max_position_embeddings": 160, "max_window_layers": 3, "model_type": "qwen3", "num_attention_heads": 4, "num_hidden_layers": 3,
            "num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_scaling": None, "rope_theta": 1000000, "sliding_window": None, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
            "transformers_version": "4.51.3", "use_cache": True, "use_sliding_window": False, "vocab_size": 256, **more}


NOMIC = {"activation_function": "swiglu", "architectures": ["NomicBertModel"], "attn_pdrop": 0.0, "bos_token_id": None, "causal": False, "dense_seq_output": True, "embd_pdrop": 0.0,
         "eos_token_id": None, "fused_bias_fc": True, "fused_dropout_add_ln": True, "initializer_range": 0.02, "layer_norm_epsilon": 1e-12, "max_trained_positions": 2048, "mlp_fc1_bias": False,
         "mlp_fc2_bias": False, "model_type": "nomic_bert", "n_embd": 48, "n_head": 3, "n_inner": 96, "n_layer": 3, "n_positions": 160, "pad_vocab_size_multiple": 64, "parallel_block": False,
         "parallel_block_tied_norm": False, "prenorm": False, "qkv_proj_bias": False, "reorder_and_upcast_attn": False, "resid_pdrop": 0.0, "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0,
         "rotary_emb_interleaved": False, "rotary_emb_scale_base": None, "rotary_scaling_factor": None, "scale_attn_by_inverse_layer_idx": False, "scale_attn_weights": True,
         "summary_activation": None, "summary_first_dropout": 0.0, "summary_proj_to_labels": True, "summary_type": "cls_index", "summary_use_proj": True, "torch_dtype": "float32",
         "transformers_version": "4.37.2", "type_vocab_size": 2, "use_cache": True, "use_flash_attn": True, "use_rms_norm": False, "use_xentropy": True, "vocab_size": 256}

EMBEDDING_GEMMA = {"_sliding_window_pattern": 3, "architectures": ["Gemma3TextModel"], "attention_bias": False, "attention_dropout": 0.0, "attn_logit_softcapping": None, "bos_token_id": 2,
                   "dtype": "float32", "eos_token_id": 1, "final_logit_softcapping": None, "head_dim": 32, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 48, "initializer_range": 0.02,
                   "intermediate_size": 64, "layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"], "max_position_embeddings": 160,
                   "model_type": "gemma3_text", "num_attention_heads": 2, "num_hidden_layers": 4, "num_key_value_heads": 1, "pad_token_id": 0, "query_pre_attn_scalar": 24, "rms_norm_eps": 1e-6,
                   "rope_local_base_freq": 100.0, "rope_scaling": None, "rope_theta": 1000000.0, "sliding_window": 16, "transformers_version": "4.57.0.dev0", "use_bidirectional_attention": True,
                   "use_cache": True, "vocab_size": 256}

DISTILBERT = {"activation": "gelu", "architectures": ["DistilBertModel"], "attention_dropout": 0.1, "dim": 48, "dropout": 0.1, "hidden_dim": 96, "initializer_range": 0.02,
              "max_position_embeddings": 128, "model_type": "distilbert", "n_heads": 3, "n_layers": 2, "pad_token_id": 0, "qa_dropout": 0.1, "seq_classif_dropout": 0.2, "sinusoidal_pos_embds": False,
              "tie_weights_": True, "transformers_version": "4.11.0", "vocab_size": 256}

NO_TYPES, NO_POSITIONS = with_weights("token_type_embeddings"), with_weights("position_embeddings")
NO_WINDOW, SAME_ROPE = with_config(local_attention=1000), with_config(local_rope_theta=160000.0)
CAUSAL_WINDOW = with_masks(create_bidirectional_mask="create_causal_mask", create_bidirectional_sliding_window_mask="create_sliding_window_causal_mask")
POSITION_FEATURES = ["learned positions", "layernorm after the residual", "gelu", "biases"]

SPECS = [
    Spec("bert", "BAAI/bge-small-en-v1.5", transformers.BertModel, bert(hidden_size=32, num_attention_heads=2, intermediate_size=128, num_hidden_layers=3, **ONE_LABEL), 1, dtype=torch.float32,
         pooling="cls", start=1, end=2, position_ids=True, features=["bidirectional attention", "token types", *POSITION_FEATURES, "cls pooling", "unused pooler"],
         ablations={"causal mask": CAUSAL, "no token types": NO_TYPES, "no positions": NO_POSITIONS, "mean pooling": with_pooling("mean"), "gelu by tanh": with_config(hidden_act="gelu_new")}),
    Spec("bert_mean", "sentence-transformers/all-MiniLM-L6-v2", transformers.BertModel, bert(num_hidden_layers=3), 2, pooling="mean", start=1, end=2, position_ids=True,
         features=["bidirectional attention", "token types", *POSITION_FEATURES, "mean pooling", "unused pooler"],
         ablations={"causal mask": CAUSAL, "no token types": NO_TYPES, "no positions": NO_POSITIONS, "cls pooling": with_pooling("cls")}),
    Spec("bert_cross", "cross-encoder/ms-marco-MiniLM-L-6-v2", transformers.BertForSequenceClassification,
         bert(architectures=["BertForSequenceClassification"], sbert_ce_default_activation_function="torch.nn.modules.linear.Identity", **ONE_LABEL), 3, start=1, end=2, pair=True, position_ids=True,
         features=["bidirectional attention", "two token types", *POSITION_FEATURES, "pooler with tanh", "one label", "bert. prefix"],
         ablations={"causal mask": CAUSAL, "one token type": without_types, "no positions": NO_POSITIONS, "no tanh in the pooler": with_module("bert.pooler.activation", torch.nn.Identity()),
                    "no pooler": with_module("bert.pooler.forward", lambda hidden: hidden[:, 0]), "no classifier bias": with_weights("classifier.bias")}),
    Spec("xlm_roberta", "BAAI/bge-m3", transformers.XLMRobertaModel, xlm_roberta(num_hidden_layers=3), 4, pooling="cls", start=0, end=2,
         features=["bidirectional attention", "positions from pad_token_id + 1", "one token type", *POSITION_FEATURES, "cls pooling", "unused pooler"],
         ablations={"causal mask": CAUSAL, "positions from 0": with_positions_from_zero, "no token types": NO_TYPES, "no positions": NO_POSITIONS, "mean pooling": with_pooling("mean")}),
    Spec("xlm_roberta_cross", "BAAI/bge-reranker-v2-m3", transformers.XLMRobertaForSequenceClassification, xlm_roberta(architectures=["XLMRobertaForSequenceClassification"], **ONE_LABEL), 5,
         start=0, end=2, pair=True, features=["bidirectional attention", "positions from pad_token_id + 1", "one token type", *POSITION_FEATURES, "head of dense, tanh, out_proj", "one label", "roberta. prefix"],
         ablations={"causal mask": CAUSAL, "positions from 0": with_positions_from_zero, "no token types": NO_TYPES, "no tanh in the head": without_activation,
                    "no bias in the head": with_weights("classifier.dense.bias")}),
    Spec("nomic_bert", "nomic-ai/nomic-embed-text-v1.5", transformers.NomicBertModel, NOMIC, 6, pooling="mean", start=1, end=2,
         features=["bidirectional attention", "fused Wqkv", "no biases", "rope", "swiglu of fc11 * silu(fc12)", "layernorm after the residual", "token types", "embedding norm", "mean pooling"],
         ablations={"causal mask": CAUSAL, "no token types": NO_TYPES, "rope base 10000": with_config(rotary_emb_base=10000), "gelu in the gate": with_config(activation_function="geglu"),
                    "cls pooling": with_pooling("cls"), "no embedding norm bias": with_weights("embeddings.LayerNorm.bias")}),
    Spec("modernbert", "Alibaba-NLP/gte-modernbert-base", transformers.ModernBertModel, modernbert(), 7, pooling="cls", start=1, end=2,
         features=["bidirectional attention", "local window in layers 1 and 2", "a rope base of its own for local layers", "no norm before the attention of layer 0", "fused Wqkv", "geglu of fused Wi",
                   "layernorm without bias", "final norm", "cls pooling"],
         ablations={"causal mask": CAUSAL_WINDOW, "no window": NO_WINDOW, "a window one token narrower on each side": with_config(local_attention=14), "one rope base": SAME_ROPE,
                    "all layers global": with_config(global_attn_every_n_layers=1), "gelu by tanh": with_config(hidden_activation="gelu_new"),
                    "attention of layer 0 normed": with_module("layers.0.attn_norm", torch.nn.LayerNorm(48)), "mean pooling": with_pooling("mean")}),
    Spec("modernbert_cross", "Alibaba-NLP/gte-reranker-modernbert-base", transformers.ModernBertForSequenceClassification,
         modernbert(architectures=["ModernBertForSequenceClassification"], **ONE_LABEL), 8, start=1, end=2,
         features=["bidirectional attention", "local window in layers 1 and 2", "a rope base of its own for local layers", "classifier_pooling mean", "head of dense, gelu, norm", "one label", "model. prefix"],
         ablations={"causal mask": CAUSAL_WINDOW, "no window": NO_WINDOW, "one rope base": SAME_ROPE, "classifier_pooling cls": with_config(classifier_pooling="cls"),
                    "no gelu in the head": with_module("head.act", torch.nn.Identity()), "no norm in the head": with_module("head.norm", torch.nn.Identity())}),
    Spec("embedding_gemma", "google/embeddinggemma-300m", transformers.Gemma3TextModel, EMBEDDING_GEMMA, 9, pooling="mean", dense=(96, 48), start=2, end=1,
         features=["bidirectional attention", "window of sliding_window / 2 to both sides", "a rope base of its own for local layers", "qk norm", "(1+w) norm", "pre and post norms", "geglu tanh",
                   "embedding scale", "mqa", "head_dim != hidden/heads", "query_pre_attn_scalar", "mean pooling", "two dense layers"],
         ablations={"causal mask": with_config(use_bidirectional_attention=False, sliding_window=9), "no window": with_config(sliding_window=1000),
                    "a window one token narrower on each side": with_config(sliding_window=14), "one rope base": with_config(rope_local_base_freq=1000000.0),
                    "scale of head_dim": with_config(query_pre_attn_scalar=32), "cls pooling": with_pooling("cls"), "no dense layers": lambda reference, prompt: reference.run(*prompt, dense=())}),
    Spec("qwen3_embedding", "Qwen/Qwen3-Embedding-0.6B", transformers.Qwen3Model, qwen3(), 10, pooling="last", end=3,
         features=["causal attention", "qk norm", "gqa", "head_dim != hidden/heads", "swiglu", "rmsnorm", "rope", "last-token pooling", "names without model. prefix"],
         ablations={"bidirectional mask": BIDIRECTIONAL, "mean pooling": with_pooling("mean"), "cls pooling": with_pooling("cls"), "rope base 10000": with_config(rope_theta=10000),
                    "no qk norm weights": with_weights("[qk]_norm.weight", 1.0), "no final norm weight": with_weights("^norm.weight", 1.0)}),
    Spec("qwen3_classify", "tomaarsen/Qwen3-Reranker-0.6B-seq-cls", transformers.Qwen3ForSequenceClassification,
         qwen3(architectures=["Qwen3ForSequenceClassification"], pad_token_id=4, num_hidden_layers=2, **ONE_LABEL), 11,
         features=["causal attention", "qk norm", "gqa", "head_dim != hidden/heads", "swiglu", "rmsnorm", "rope", "score.weight on the last token", "one label", "model. prefix"],
         ablations={"bidirectional mask": BIDIRECTIONAL, "rope base 10000": with_config(rope_theta=10000), "no qk norm weights": with_weights("[qk]_norm.weight", 1.0),
                    "score of the first token": lambda reference, prompt: reference.run(*prompt, score_row=0)}),
    Spec("distilbert", "sentence-transformers/multi-qa-distilbert-cos-v1", transformers.DistilBertModel, DISTILBERT, 12, pooling="mean", start=1, end=2,
         features=["bidirectional attention", "no token types", *POSITION_FEATURES, "names of its own", "mean pooling"],
         ablations={"causal mask": CAUSAL, "no positions": NO_POSITIONS, "cls pooling": with_pooling("cls")}),
]
