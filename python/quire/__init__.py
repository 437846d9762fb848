"""Quire: inference of large language models on CPUs, with vLLM's offline API.

from quire import LLM, SamplingParams

llm = LLM(model="smollm2")
for output in llm.generate(["The sea is", "A cat is"], SamplingParams(max_tokens=32)):
    print(output.outputs[0].text)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._quire import version as __version__

if TYPE_CHECKING:
    from .async_llm import AsyncLLM, AsyncLLMEngine
    from .engine_args import AsyncEngineArgs, EngineArgs, FlexibleArgumentParser
    from .errors import InvalidError, NotFoundError, QuireError, ResourceError, UnsupportedError
    from .inputs import PromptType, TextPrompt, TokensPrompt
    from .llm import LLM
    from .llm_engine import LLMEngine
    from .lora.request import LoRARequest
    from .outputs import (
        ClassificationOutput,
        ClassificationRequestOutput,
        CompletionOutput,
        EmbeddingOutput,
        EmbeddingRequestOutput,
        Logprob,
        PoolingOutput,
        PoolingRequestOutput,
        RequestOutput,
        ScoringOutput,
        ScoringRequestOutput,
        print_embeddings,
    )
    from .pooling_params import PoolerConfig, PoolingParams
    from .sampling_params import BeamSearchParams, RequestOutputKind, SamplingParams, StructuredOutputsParams
    from .tokenizer import Tokenizer

# Imported when they are used: the program `quire` needs none of them, and numpy alone takes a tenth of a second.
_MODULES = {
    ".async_llm": ("AsyncLLM", "AsyncLLMEngine"),
    ".engine_args": ("AsyncEngineArgs", "EngineArgs", "FlexibleArgumentParser"),
    ".errors": ("InvalidError", "NotFoundError", "QuireError", "ResourceError", "UnsupportedError"),
    ".inputs": ("PromptType", "TextPrompt", "TokensPrompt"),
    ".llm": ("LLM",),
    ".llm_engine": ("LLMEngine",),
    ".lora.request": ("LoRARequest",),
    ".outputs": (
        "ClassificationOutput",
        "ClassificationRequestOutput",
        "CompletionOutput",
        "EmbeddingOutput",
        "EmbeddingRequestOutput",
        "Logprob",
        "PoolingOutput",
        "PoolingRequestOutput",
        "RequestOutput",
        "ScoringOutput",
        "ScoringRequestOutput",
        "print_embeddings",
    ),
    ".pooling_params": ("PoolerConfig", "PoolingParams"),
    ".sampling_params": ("BeamSearchParams", "RequestOutputKind", "SamplingParams", "StructuredOutputsParams"),
    ".tokenizer": ("Tokenizer",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name], __name__), name)


def __dir__() -> list[str]:
    return __all__


__all__ = [
    "LLM",
    "AsyncEngineArgs",
    "AsyncLLM",
    "AsyncLLMEngine",
    "BeamSearchParams",
    "ClassificationOutput",
    "ClassificationRequestOutput",
    "CompletionOutput",
    "EmbeddingOutput",
    "EmbeddingRequestOutput",
    "EngineArgs",
    "FlexibleArgumentParser",
    "InvalidError",
    "LLMEngine",
    "LoRARequest",
    "Logprob",
    "NotFoundError",
    "PoolerConfig",
    "PoolingOutput",
    "PoolingParams",
    "PoolingRequestOutput",
    "PromptType",
    "QuireError",
    "RequestOutput",
    "RequestOutputKind",
    "ResourceError",
    "SamplingParams",
    "ScoringOutput",
    "ScoringRequestOutput",
    "StructuredOutputsParams",
    "TextPrompt",
    "Tokenizer",
    "TokensPrompt",
    "UnsupportedError",
    "__version__",
    "print_embeddings",
]
