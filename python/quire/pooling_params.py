"""How prompts become vectors: vLLM's PoolingParams and PoolerConfig."""

from dataclasses import dataclass
from typing import Any

from .errors import InvalidError, UnsupportedError

_POOLINGS = {"MEAN": "mean", "LAST": "last", "CLS": "cls"}


@dataclass
class PoolerConfig:
    """pooling_type: MEAN, LAST or CLS; None: as the model's files say, or MEAN."""

    pooling_type: str | None = None
    normalize: bool | None = None

    def __post_init__(self) -> None:
        if self.pooling_type is not None and self.pooling_type not in _POOLINGS:
            raise UnsupportedError(f"pooling_type {self.pooling_type!r} is not supported; use MEAN, LAST or CLS")
        if self.normalize is False:
            raise UnsupportedError("normalize=False is not supported; embeddings have length 1")

    def _pooling(self) -> str | None:
        return None if self.pooling_type is None else _POOLINGS[self.pooling_type]


@dataclass
class PoolingParams:
    """truncate_prompt_tokens: keep so many of the last tokens of a prompt; -1: as many as fit."""

    truncate_prompt_tokens: int | None = None
    dimensions: int | None = None
    normalize: bool | None = None
    use_activation: bool | None = None
    task: str | None = None
    extra_kwargs: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.normalize is False:
            raise UnsupportedError("normalize=False is not supported; embeddings have length 1")
        if self.extra_kwargs:
            raise UnsupportedError("extra_kwargs is not supported")
        limit = self.truncate_prompt_tokens
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or (limit < 1 and limit != -1)):
            raise InvalidError(f"truncate_prompt_tokens is {limit!r}: it must be at least 1, or -1 for what fits")

    def clone(self) -> "PoolingParams":
        return PoolingParams(**vars(self))
