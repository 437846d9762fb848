"""vLLM's options of an engine, and what they are for Quire's."""

import argparse
import dataclasses
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import _quire
from .errors import InvalidError, NotFoundError, UnsupportedError
from .pooling_params import PoolerConfig

_DTYPES = {"auto": "auto", "float32": "f32", "float": "f32", "f32": "f32", "bfloat16": "bf16", "bf16": "bf16"}
_CACHE_DTYPES = {"fp8_e4m3": "fp8", "bfloat16": "bf16", "float16": "f16", "half": "f16", "float32": "f32"}
_METHODS = {"draft_model": "draft", "eagle3": "eagle"}
# Where the engine expects what speculative_config calls "model".
_DRAFT_FILES = {"draft": "draft_model", "eagle": "eagle_head", "medusa": "medusa_heads"}

# Options that ask for another engine than this one: (name, values that it fits, what to do).
_REFUSED: tuple[tuple[str, tuple[Any, ...], str], ...] = (
    ("data_parallel_size", (1,), "start several processes"),
    ("tokenizer_mode", ("auto", "slow"), ""),
    ("skip_tokenizer_init", (False,), "pass prompt_token_ids, and detokenize=False"),
    ("load_format", ("auto", "safetensors", "gguf", "hf"), ""),
    ("cpu_offload_gb", (0,), "weights are in host memory"),
    ("lora_dtype", ("auto",), "adapters keep the types of their files"),
    ("fully_sharded_loras", (False,), "one process computes"),
    ("lora_target_modules", (None,), "adapters change what their files say"),
    ("default_mm_loras", (None, {}), "only texts are supported"),
    ("hf_overrides", (None, {}), "change config.json"),
    ("revision", (None,), "download the revision, and pass its path"),
    ("tokenizer_revision", (None,), "the tokenizer is the model's"),
    ("code_revision", (None,), "no code of models is run"),
    ("mm_processor_kwargs", (None, {}), "only texts are supported"),
    ("limit_mm_per_prompt", (None, {}), "only texts are supported"),
    ("device", ("auto", "cpu"), "the package computes on the CPU; the program quire has --device cuda"),
)


@dataclass
class EngineArgs:
    """The model and how to run it. Raises UnsupportedError for what cannot be honoured.

    model: a name that `quire list` shows, a GGUF file, or a Hugging Face directory.
    dtype: how the inputs of linear layers are rounded: auto, float32 or bfloat16. Quire's other types: activations.
    quantization: None, or the method of the checkpoint, which is checked. `quire quantize` makes other types.
    gpu_memory_utilization: the share of the memory available now that the engine may take; None: nearly all, but half
        for the KV cache at most.
    enable_lora: requests may name adapters (lora_request). max_loras, max_cpu_loras: memory is reserved for the larger
        number of adapters, of rank max_lora_rank at most.
    enforce_eager and the other options in the last group concern GPUs or PyTorch, and change nothing here.
    engine_options: members of Quire's EngineOptions (include/quire/engine.h) by name, such as threads or cache_dir.
    """

    model: str = "smollm2"
    tokenizer: str | None = None
    tokenizer_mode: str = "auto"
    skip_tokenizer_init: bool = False
    dtype: Any = "auto"
    quantization: str | None = None
    max_model_len: int | None = None
    gpu_memory_utilization: float | None = None
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    kv_cache_dtype: str = "auto"
    speculative_config: dict[str, Any] | None = None
    seed: int | None = 0
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    enable_prefix_caching: bool | None = None
    enable_chunked_prefill: bool | None = None
    pooler_config: PoolerConfig | dict[str, Any] | None = None
    override_pooler_config: PoolerConfig | dict[str, Any] | None = None
    load_format: str = "auto"
    device: str = "auto"
    cpu_offload_gb: float = 0
    enable_lora: bool | None = False
    max_loras: int = 1
    max_lora_rank: int = 16
    max_cpu_loras: int | None = None
    lora_dtype: str | None = "auto"
    fully_sharded_loras: bool = False
    lora_target_modules: list[str] | None = None
    default_mm_loras: dict[str, str] | None = None
    hf_overrides: Any = None
    revision: str | None = None
    tokenizer_revision: str | None = None
    code_revision: str | None = None
    mm_processor_kwargs: dict[str, Any] | None = None
    limit_mm_per_prompt: dict[str, Any] | None = None

    task: str = "auto"
    runner: str = "auto"
    convert: str = "auto"
    trust_remote_code: bool = False
    enforce_eager: bool = False
    disable_log_stats: bool = True
    disable_custom_all_reduce: bool = False
    disable_async_output_proc: bool = False
    max_seq_len_to_capture: int | None = None
    compilation_config: Any = None
    swap_space: float | None = None
    attention_backend: str | None = None
    hf_token: Any = None

    engine_options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_keywords(cls, **values: Any) -> "EngineArgs":
        """Names that vLLM does not have are taken for members of Quire's EngineOptions."""
        known = {one.name for one in dataclasses.fields(cls)}
        own = {name: value for name, value in values.items() if name in known}
        rest = {name: value for name, value in values.items() if name not in known}
        own["engine_options"] = {**own.get("engine_options", {}), **rest}
        return cls(**own)

    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
        """A flag for each option: --max-model-len, --enforce-eager, --speculative-config '{…}'."""
        for one in dataclasses.fields(EngineArgs):
            flag, declared = "--" + one.name.replace("_", "-"), str(one.type)
            default = {} if one.name == "engine_options" else one.default
            if "bool" in declared:
                parser.add_argument(flag, action=argparse.BooleanOptionalAction, default=default)
            elif "dict" in declared:
                parser.add_argument(flag, type=json.loads, default=default, metavar="JSON")
            else:
                kind = int if "int" in declared else float if "float" in declared else str
                parser.add_argument(flag, type=kind, default=default)
        return parser

    @classmethod
    def from_cli_args(cls, args: argparse.Namespace) -> "EngineArgs":
        return cls(**{one.name: getattr(args, one.name) for one in dataclasses.fields(cls) if hasattr(args, one.name)})

    def pooling(self) -> str | None:
        """What requests for vectors ask for; None: as the model's files say."""
        config = self.pooler_config if self.pooler_config is not None else self.override_pooler_config
        if isinstance(config, dict):
            config = PoolerConfig(**config)
        return None if config is None else config._pooling()

    def adapter_room(self) -> int:
        """How many adapters may be loaded at a time."""
        for name, value in (("max_loras", self.max_loras), ("max_cpu_loras", self.max_cpu_loras)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise TypeError(f"{name} must be an int, not {type(value).__name__}")
            if value is not None and value < 1:
                raise InvalidError(f"{name} is {value}: it must be at least 1")
        return max(self.max_loras, self.max_cpu_loras or 0) if self.enable_lora else 0

    def to_engine_options(self) -> dict[str, Any]:
        """Members of Quire's EngineOptions."""
        for name, fitting, advice in _REFUSED:
            if getattr(self, name) not in fitting:
                raise UnsupportedError(f"{name}={getattr(self, name)!r} is not supported" + (f"; {advice}" if advice else ""))
        if not isinstance(self.model, (str, Path)):
            raise TypeError(f"model must be a str, not {type(self.model).__name__}")
        model = str(self.model)
        if self.tokenizer is not None and str(self.tokenizer) != model:
            raise UnsupportedError(f"tokenizer={self.tokenizer!r} is not supported; the tokenizer is the model's")
        options: dict[str, Any] = {
            "model": model,
            "activations": self._activations(),
            "kv_cache_dtype": _CACHE_DTYPES.get(self.kv_cache_dtype, self.kv_cache_dtype),
        }
        self._check_quantization(model)
        for ours, value in (
            ("tensor_parallel_size", self.tensor_parallel_size),
            ("pipeline_parallel_size", self.pipeline_parallel_size),
            ("max_model_len", self.max_model_len),
            ("max_num_seqs", self.max_num_seqs),
            ("max_num_batched_tokens", self.max_num_batched_tokens),
            ("prefix_cache", self.enable_prefix_caching),
            ("chunked_prefill", self.enable_chunked_prefill),
            ("memory_bytes", self._memory_bytes()),
        ):
            if value is not None:
                options[ours] = value
        if room := self.adapter_room():
            options |= {"max_adapters": room, "max_adapter_rank": self.max_lora_rank}
        options.update(self._speculation())
        # As the program does, whose measurements of this machine are used, too.
        options["tuning_file"] = _quire.default_tuning_file()
        if mode := os.environ.get("QUIRE_TUNE"):
            options["tune"] = mode
        options.update(self.engine_options)
        if isinstance(options.get("chat_template_kwargs"), dict):
            options["chat_template_kwargs"] = json.dumps(options["chat_template_kwargs"])
        return options

    def _activations(self) -> str:
        name = str(self.dtype).removeprefix("torch.")
        if name not in _DTYPES:
            raise UnsupportedError(f"dtype={name!r} is not supported; use auto, float32 or bfloat16, or activations=")
        return _DTYPES[name]

    def _memory_bytes(self) -> int | None:
        share = self.gpu_memory_utilization
        if share is None:
            return None
        if isinstance(share, bool) or not isinstance(share, (int, float)):
            raise TypeError(f"gpu_memory_utilization must be a number, not {type(share).__name__}")
        if not 0 < share <= 1:
            raise InvalidError(f"gpu_memory_utilization is {share}: it must be above 0 and at most 1")
        # The engine's own limit leaves a twentieth to other programs.
        return None if share >= 0.95 else int(share * _quire.available_memory())

    def _check_quantization(self, model: str) -> None:
        if self.quantization is None:
            return
        if self.quantization == "gguf" and model.endswith(".gguf"):
            return
        config = Path(model) / "config.json"
        if not config.exists():
            raise UnsupportedError(f"quantization={self.quantization!r} is not supported for {model}; leave it out: the file says how it is quantized")
        try:
            own = json.loads(config.read_text()).get("quantization_config", {}).get("quant_method")
        except (ValueError, AttributeError) as error:
            raise InvalidError(f"{config} is not a JSON object: {error}") from error
        if own is None or self.quantization.removesuffix("_marlin") != own:
            raise UnsupportedError(
                f"quantization={self.quantization!r} is not supported: {model} is {own or 'not quantized'}; `quire quantize` makes other types"
            )

    def _speculation(self) -> dict[str, Any]:
        if self.speculative_config is None:
            return {}
        if not isinstance(self.speculative_config, dict):
            raise TypeError(f"speculative_config must be a dict, not {type(self.speculative_config).__name__}")
        config = dict(self.speculative_config)
        draft = config.pop("model", None)
        method = config.pop("method", None) or ("draft" if draft else "auto")
        method = "mtp" if method.endswith("_mtp") else _METHODS.get(method, method)
        options = {"speculative": method}
        if draft is not None and method in _DRAFT_FILES:
            options[_DRAFT_FILES[method]] = draft
        elif draft is not None and not (method == "ngram" and draft in ("ngram", "[ngram]")):
            raise InvalidError(f"speculative_config: method {method!r} takes no model")
        if (tokens := config.pop("num_speculative_tokens", None)) is not None:
            options["num_speculative_tokens"] = tokens
        if (acceptance := config.pop("acceptance", None)) is not None:
            options["speculative_acceptance"] = acceptance
        for hint in ("prompt_lookup_max", "prompt_lookup_min", "draft_tensor_parallel_size"):  # the engine adapts lengths itself
            config.pop(hint, None)
        if unknown := {name for name, value in config.items() if value is not None}:
            raise UnsupportedError(
                f"speculative_config: {', '.join(sorted(unknown))} is not supported; use method, model, num_speculative_tokens and acceptance"
            )
        return options

    def load(self) -> _quire.Engine:
        options = self.to_engine_options()
        try:
            return _quire.Engine(options)
        except NotFoundError as error:
            if options["model"].count("/") == 1 and not Path(options["model"]).exists():
                raise NotFoundError(f"{error}\nDownload the model first, and pass the path of its directory or GGUF file") from None
            raise


@dataclass
class AsyncEngineArgs(EngineArgs):
    """The same for AsyncLLM."""

    disable_log_requests: bool = True
    enable_log_requests: bool = False


class FlexibleArgumentParser(argparse.ArgumentParser):
    """Flags may have underscores: --max_model_len."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        given = sys.argv[1:] if args is None else list(args)
        name = [one.partition("=") for one in given]
        return super().parse_args([n.replace("_", "-") + eq + value if n.startswith("--") else n + eq + value for n, eq, value in name], namespace)
