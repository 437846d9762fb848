"""What requests return, with vLLM's attributes."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from .lora.request import LoRARequest


@dataclass
class Logprob:
    """rank counts from 1; None: the token is not among those that the request asked for."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


@dataclass
class CompletionOutput:
    """One answer. finish_reason: stop, length or abort; None: it goes on. stop_reason: the stop string or the id of the
    stop token that ended it."""

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None
    logprobs: list[dict[int, Logprob]] | None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    lora_request: LoRARequest | None = None

    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclass
class RequestMetrics:
    """Seconds since submission, of the first answer that ended."""

    queued_seconds: float
    first_token_latency: float
    seconds: float
    num_generation_tokens: int


@dataclass
class RequestOutput:
    """The answers to one prompt."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    prompt_logprobs: list[dict[int, Logprob] | None] | None
    outputs: list[CompletionOutput]
    finished: bool
    metrics: RequestMetrics | None = None
    lora_request: LoRARequest | None = None
    encoder_prompt: str | None = None
    encoder_prompt_token_ids: list[int] | None = None
    num_cached_tokens: int | None = None


@dataclass
class PoolingOutput:
    """data: float32, the engine's memory without a copy."""

    data: "np.ndarray[Any, np.dtype[np.float32]]"


@dataclass
class EmbeddingOutput:
    """embedding: float32, length 1, the engine's memory without a copy. vLLM has a list here: embedding.tolist()."""

    embedding: "np.ndarray[Any, np.dtype[np.float32]]"

    @property
    def hidden_size(self) -> int:
        return len(self.embedding)


@dataclass
class ClassificationOutput:
    """probs: one number for each class."""

    probs: list[float]

    @property
    def num_classes(self) -> int:
        return len(self.probs)


@dataclass
class ScoringOutput:
    score: float


_Data = TypeVar("_Data")


@dataclass
class PoolingRequestOutput(Generic[_Data]):
    request_id: str
    outputs: _Data
    prompt_token_ids: list[int]
    num_cached_tokens: int
    finished: bool = True


class EmbeddingRequestOutput(PoolingRequestOutput[EmbeddingOutput]):
    pass


class ClassificationRequestOutput(PoolingRequestOutput[ClassificationOutput]):
    pass


class ScoringRequestOutput(PoolingRequestOutput[ScoringOutput]):
    pass


def print_embeddings(embeds: Any, prefix: str = "Embeddings") -> None:
    """Prints the first numbers of a vector, for vLLM's examples."""
    numbers = ", ".join(str(float(number)) for number in embeds[:4])
    print(f"{prefix}: [{numbers}{', ...' if len(embeds) > 4 else ''}] (size={len(embeds)})")
