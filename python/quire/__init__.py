"""Quire: inference of large language models on CPUs, with vLLM's offline API.

from quire import LLM, SamplingParams

llm = LLM(model="smollm2")
for output in llm.generate(["The sea is", "A cat is"], SamplingParams(max_tokens=32)):
    print(output.outputs[0].text)
"""

from ._quire import version as __version__
from .async_llm import AsyncLLM
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

AsyncLLMEngine = AsyncLLM

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
