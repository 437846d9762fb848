"""Prompts: texts, token ids, and vLLM's dicts of them."""

from collections.abc import Sequence
from typing import Any, TypedDict, Union

import numpy as np

from . import _quire
from .errors import InvalidError, UnsupportedError


class TextPrompt(TypedDict, total=False):
    prompt: str
    cache_salt: str


class TokensPrompt(TypedDict, total=False):
    prompt_token_ids: Sequence[int]
    prompt: str
    cache_salt: str


PromptType = Union[str, Sequence[int], "np.ndarray[Any, Any]", TextPrompt, TokensPrompt]

_KNOWN = {"prompt", "prompt_token_ids", "cache_salt"}
_EMPTY: tuple[Any, ...] = (None, {}, [])


class EncodedPrompt:
    """A prompt as the engine takes it. ids: int32, one dimension, contiguous."""

    __slots__ = ("cache_salt", "ids", "second_text", "text")

    def __init__(self, ids: "np.ndarray[Any, Any]", text: str | None = None, cache_salt: str | None = None, second_text: int | None = None) -> None:
        self.ids, self.text, self.cache_salt, self.second_text = ids, text, cache_salt, second_text


def as_token_ids(ids: Any, name: str = "prompt_token_ids") -> "np.ndarray[Any, Any]":
    """Without a copy if it is a contiguous int32 array."""
    try:
        array = np.asarray(ids)
    except ValueError as error:  # lists of different lengths
        raise TypeError(f"{name} must be a list or an array of ints") from error
    if array.size == 0:
        raise InvalidError(f"{name} is empty: the prompt has no tokens")
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be a list or an array of ints in one dimension, each below 2**31, not {array.dtype} in {array.ndim} dimensions")
    if array.min() < 0 or array.max() > np.iinfo(np.int32).max:
        raise InvalidError(f"{name} has a number outside the vocabulary: the least is {array.min()}, the largest {array.max()}")
    return np.ascontiguousarray(array, dtype=np.int32)


def encode_prompt(engine: _quire.Engine, prompt: Any, add_special: bool = True) -> EncodedPrompt:
    if isinstance(prompt, str):
        return EncodedPrompt(engine.encode(prompt, add_special), prompt)
    if isinstance(prompt, dict):
        for name, value in prompt.items():
            if name not in _KNOWN and value not in _EMPTY:
                raise UnsupportedError(f"{name} in a prompt is not supported; Quire takes prompt or prompt_token_ids")
        salt = prompt.get("cache_salt")
        if prompt.get("prompt_token_ids") is not None:
            return EncodedPrompt(as_token_ids(prompt["prompt_token_ids"]), prompt.get("prompt"), salt)
        if "prompt" not in prompt:
            raise InvalidError("a prompt must have prompt or prompt_token_ids")
        if not isinstance(prompt["prompt"], str):
            raise TypeError(f"prompt must be a str, not {type(prompt['prompt']).__name__}")
        return EncodedPrompt(engine.encode(prompt["prompt"], add_special), prompt["prompt"], salt)
    if isinstance(prompt, (list, tuple, np.ndarray)):
        return EncodedPrompt(as_token_ids(prompt))
    raise TypeError(f"a prompt must be a str, a list of token ids or a dict, not {type(prompt).__name__}")


def list_prompts(prompts: Any) -> list[Any]:
    """One prompt or several: a str, a dict, a list of ints and an array of one dimension are one."""
    if isinstance(prompts, (str, dict)):
        return [prompts]
    if isinstance(prompts, np.ndarray):
        return [prompts] if prompts.ndim == 1 else list(prompts)
    if isinstance(prompts, Sequence):
        if len(prompts) > 0 and all(isinstance(one, (int, np.integer)) and not isinstance(one, bool) for one in prompts):
            return [prompts]
        return list(prompts)
    raise TypeError(f"prompts must be a str, a list or a dict, not {type(prompts).__name__}")


def truncate(prompt: EncodedPrompt, limit: int | None, most: int) -> EncodedPrompt:
    """Keeps the last `limit` tokens; -1: `most`."""
    if limit is None:
        return prompt
    ids = prompt.ids[-(most if limit == -1 else limit) :]
    return EncodedPrompt(np.ascontiguousarray(ids), prompt.text, prompt.cache_salt)
