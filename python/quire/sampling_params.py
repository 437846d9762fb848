"""How tokens are chosen and when an answer ends: vLLM's SamplingParams, with Quire's own parameters."""

import copy
import dataclasses
import json as json_text
from dataclasses import dataclass
from enum import Enum
from typing import Any

from . import _quire
from .errors import InvalidError, UnsupportedError


class RequestOutputKind(Enum):
    """What AsyncLLM yields."""

    CUMULATIVE = 0  # the whole answer so far
    DELTA = 1  # what is new
    FINAL_ONLY = 2  # the answer, once it is complete


@dataclass
class StructuredOutputsParams:
    """What an answer must match: exactly one of json, regex, choice, grammar and json_object.

    json is a JSON Schema, as a dict or as text; grammar is GBNF or EBNF.
    """

    json: str | dict[str, Any] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    disable_fallback: bool = False
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: str | None = None
    structural_tag: str | None = None

    def __post_init__(self) -> None:
        for name in ("disable_any_whitespace", "disable_additional_properties", "whitespace_pattern", "structural_tag"):
            if getattr(self, name):
                raise UnsupportedError(f"structured_outputs.{name} is not supported; use json, regex, choice, grammar or json_object")
        given = [name for name in ("json", "regex", "choice", "grammar", "json_object") if getattr(self, name) is not None]
        if len(given) != 1:
            raise InvalidError(f"structured_outputs takes exactly one of json, regex, choice, grammar and json_object, not {' and '.join(given) or 'none'}")

    def _source(self) -> dict[str, Any] | None:
        """What the engine compiles; None: no constraint."""
        if self.json is not None:
            if not isinstance(self.json, (str, dict, bool)):
                raise TypeError(f"structured_outputs.json must be a dict or a str, not {type(self.json).__name__}")
            text = self.json if isinstance(self.json, str) else json_text.dumps(self.json)
            return {"kind": "json_schema", "text": text, "label": "structured_outputs.json"}
        if self.choice is not None:
            return {"kind": "choice", "choices": list(self.choice), "label": "structured_outputs.choice"}
        if self.json_object is not None:
            return {"kind": "json_object"} if self.json_object else None
        kind = "regex" if self.regex is not None else "grammar"
        return {"kind": kind, "text": getattr(self, kind), "label": f"structured_outputs.{kind}"}


# Fields that the engine takes under the same name; the others unless they are None.
_NUMBERS = tuple(name for name, _, _ in _quire.sampling_parameters())
_OPTIONAL = ("max_tokens", "stop", "stop_token_ids", "bad_words", "logprobs", "prompt_logprobs", "logit_bias", "allowed_token_ids", "dry_sequence_breakers")

# Fields of vLLM that cannot be honoured: (name, values that mean nothing, what to do).
_REFUSED: tuple[tuple[str, tuple[Any, ...], str], ...] = (
    ("best_of", (None, 1), "use n"),
    ("logits_processors", (None, []), "use logit_bias, allowed_token_ids, bad_words or structured_outputs"),
    ("flat_logprobs", (False,), "logprobs are lists of dicts"),
    ("spaces_between_special_tokens", (True,), "texts are those of the tokenizer"),
    ("prompt_logprob_token_ids", (None,), "use prompt_logprobs"),
    ("prompt_logprob_start", (None,), "use prompt_logprobs"),
    ("logprob_token_ids", (None,), "use logprobs"),
    ("thinking_token_budget", (None, -1), "the server has max_reasoning_tokens"),
    ("repetition_detection", (None,), "use repetition_penalty or dry_multiplier"),
    ("trace_decode_token_ids", (None,), ""),
    ("stream_interval", (None, 1), "pieces that a slow reader has not taken are joined"),
    ("extra_args", (None, {}), ""),
)


@dataclass
class SamplingParams:
    """vLLM's fields with vLLM's defaults, then Quire's. Raises InvalidError (a ValueError), TypeError, or
    UnsupportedError for a value that cannot be honoured. Ranges are those of docs/api.md."""

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    detokenize: bool = True
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    truncate_prompt_tokens: int | None = None
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    structured_outputs: StructuredOutputsParams | dict[str, Any] | None = None
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    skip_reading_prefix_cache: bool | None = None

    typical_p: float = 1.0
    top_n_sigma: float = 0.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    repeat_last_n: int = -1
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    dry_sequence_breakers: list[str] | None = None  # None: line end, colon, quote and asterisk
    timeout: float = 0.0  # seconds from submission until the answer must have ended; 0: none

    best_of: int | None = None
    logits_processors: list[Any] | None = None
    flat_logprobs: bool = False
    spaces_between_special_tokens: bool = True
    prompt_logprob_token_ids: list[int] | None = None
    prompt_logprob_start: int | None = None
    logprob_token_ids: list[int] | None = None
    thinking_token_budget: int | None = None
    repetition_detection: Any = None
    trace_decode_token_ids: list[int] | None = None
    stream_interval: int | None = None
    extra_args: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            self.stop = [self.stop]
        if self.seed == -1:
            self.seed = None  # vLLM's other way to say so
        if isinstance(self.structured_outputs, dict):
            self.structured_outputs = StructuredOutputsParams(**self.structured_outputs)
        self._engine_values(0)

    @staticmethod
    def from_optional(**values: Any) -> "SamplingParams":
        """None stands for a field's default."""
        return SamplingParams(**{name: value for name, value in values.items() if value is not None})

    def clone(self) -> "SamplingParams":
        return copy.deepcopy(self)

    def _engine_values(self, drawn_seed: int) -> dict[str, Any]:
        """Checks all fields. drawn_seed: for answers without a seed of their own."""
        for name, neutral, advice in _REFUSED:
            value = getattr(self, name)
            if not any(value is other or (type(value) is type(other) and value == other) for other in neutral):
                raise UnsupportedError(f"{name} is not supported" + (f"; {advice}" if advice else ""))
        if not isinstance(self.output_kind, RequestOutputKind):
            raise TypeError(f"output_kind must be a RequestOutputKind, not {type(self.output_kind).__name__}")
        if not isinstance(self.structured_outputs, (StructuredOutputsParams, type(None))):
            raise TypeError(f"structured_outputs must be StructuredOutputsParams or a dict, not {type(self.structured_outputs).__name__}")
        if self.allowed_token_ids is not None and len(self.allowed_token_ids) == 0:
            raise InvalidError("allowed_token_ids must not be empty; None allows all tokens")
        if not isinstance(self.detokenize, bool):
            raise TypeError(f"detokenize must be a bool, not {type(self.detokenize).__name__}")
        if isinstance(self.timeout, bool) or not isinstance(self.timeout, (int, float)):
            raise TypeError(f"timeout must be a number, not {type(self.timeout).__name__}")
        if not self.timeout >= 0:
            raise InvalidError(f"timeout is {self.timeout}: it must be a number of seconds, or 0 for none")
        limit = self.truncate_prompt_tokens
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or (limit < 1 and limit != -1)):
            raise InvalidError(f"truncate_prompt_tokens is {limit!r}: it must be at least 1, or -1 for what fits")
        values = {name: getattr(self, name) for name in _NUMBERS}
        values |= {name: value for name in _OPTIONAL if (value := getattr(self, name)) is not None}
        if isinstance(self.logit_bias, dict):  # JSON has no other keys
            values["logit_bias"] = {int(key) if isinstance(key, str) and key.isdigit() else key: bias for key, bias in self.logit_bias.items()}
        values["seed"] = drawn_seed if self.seed is None else self.seed
        _quire.check_sampling(values)
        return values

    def __repr__(self) -> str:
        changed = (f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if getattr(self, f.name) != f.default)
        return f"SamplingParams({', '.join(changed)})"


@dataclass
class BeamSearchParams:
    """vLLM's beam search, which Quire does not have: LLM.beam_search raises UnsupportedError."""

    beam_width: int
    max_tokens: int
    ignore_eos: bool = False
    temperature: float = 0.0
    length_penalty: float = 1.0
    include_stop_str_in_output: bool = False
