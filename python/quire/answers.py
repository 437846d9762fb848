"""Requests to the engine, and their pieces put together to outputs."""

import random
import time

from . import _quire
from .errors import InvalidError, QuireError
from .inputs import EncodedPrompt, truncate
from .lora.request import LoRARequest
from .outputs import CompletionOutput, Logprob, RequestMetrics, RequestOutput
from .sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams
from .tokenizer import Tokenizer

_ENDINGS = {"stop": "stop", "length": "length", "cancelled": "abort"}


def raise_failure(piece: _quire.Piece) -> None:
    """If the answer ended for a reason that is an error."""
    if piece.finish in ("none", *_ENDINGS):
        return
    if piece.finish == "timeout":
        raise QuireError("the answer did not end within SamplingParams.timeout")
    raise (QuireError if piece.finish in ("error", "lost") else InvalidError)(piece.error or f"the request ended with {piece.finish}")


def submit_request(
    engine: _quire.Engine, queue: _quire.AnswerQueue, prompt: EncodedPrompt, params: SamplingParams, seeds: random.Random, *, at_end: bool, priority: int = 0, adapter: str = ""
) -> tuple[int, EncodedPrompt]:
    """The ticket, and the prompt that was submitted."""
    values = params._engine_values(seeds.getrandbits(64))
    answer = 0 if params.max_tokens == 0 else 1
    prompt = truncate(prompt, params.truncate_prompt_tokens, engine.info()["max_model_len"] - answer)
    salt = prompt.cache_salt
    if params.skip_reading_prefix_cache:
        salt = f"{salt or ''}-{random.getrandbits(128):x}"  # nothing was computed under it
    constraint = params.structured_outputs._source() if isinstance(params.structured_outputs, StructuredOutputsParams) else None
    ticket = queue.submit(prompt.ids, values, at_end, constraint=constraint, priority=priority, timeout=params.timeout, cache_salt=salt, adapter=adapter)
    return ticket, prompt


def close_and_wait(engine: _quire.Engine) -> None:
    """At the end of the interpreter, no thread may be within a call of the module."""
    engine.close()
    deadline = time.monotonic() + 10
    while engine.calls and time.monotonic() < deadline:
        time.sleep(0.001)


class Answers:
    """The answers to one prompt, from their pieces."""

    def __init__(self, request_id: str, prompt: EncodedPrompt, params: SamplingParams, tokenizer: Tokenizer, adapter: LoRARequest | None = None) -> None:
        self._params, self._tokenizer = params, tokenizer
        self._wants_logprobs = params.logprobs is not None
        self._delta = params.output_kind is RequestOutputKind.DELTA
        self._prompt_ids = prompt.ids.tolist()
        self._running = params.n
        self.request_id, self.kind = request_id, params.output_kind
        self._output = RequestOutput(request_id, prompt.text, self._prompt_ids, None, [self._empty(i) for i in range(params.n)], False, lora_request=adapter)

    def _empty(self, index: int) -> CompletionOutput:
        return CompletionOutput(index, "", [], 0.0 if self._wants_logprobs else None, [] if self._wants_logprobs else None)

    @property
    def finished(self) -> bool:
        return self._running == 0

    def add(self, pieces: list[_quire.Piece]) -> None:
        """Raises what the engine says of an answer that failed."""
        for piece in pieces:
            raise_failure(piece)
            self._add(self._output.outputs[piece.choice], piece)

    def take(self) -> RequestOutput:
        """The answers so far, or with RequestOutputKind.DELTA what is new; the caller's own."""
        whole = self._output
        outputs = [one for one in whole.outputs if not self._delta or one.token_ids or one.text or one.finish_reason]
        copies = [
            CompletionOutput(**{**vars(one), "token_ids": list(one.token_ids), "logprobs": None if one.logprobs is None else list(one.logprobs)})
            for one in outputs
        ]
        taken = RequestOutput(**{**vars(whole), "outputs": copies, "finished": self.finished})
        if self._delta:
            for one in whole.outputs:
                one.text, one.token_ids, one.finish_reason = "", [], None
                if self._wants_logprobs:
                    one.logprobs = []
        return taken

    def whole(self) -> RequestOutput:
        """The complete answers, without a copy."""
        self._output.finished = True
        return self._output

    def _add(self, answer: CompletionOutput, piece: _quire.Piece) -> None:
        if self._params.detokenize:
            answer.text += piece.text
        answer.token_ids += piece.token_ids
        if answer.logprobs is not None and answer.cumulative_logprob is not None:
            for token in piece.logprobs:
                answer.logprobs.append(self._logprobs(token))
                answer.cumulative_logprob += token[1]
        if self._params.prompt_logprobs is not None and self._output.prompt_logprobs is None and (tokens := piece.prompt_logprobs):
            self._output.prompt_logprobs = [None, *map(self._logprobs, tokens[1:])]
        if piece.finish != "none":
            self._end(answer, piece)

    def _end(self, answer: CompletionOutput, piece: _quire.Piece) -> None:
        self._running -= 1
        answer.finish_reason = _ENDINGS[piece.finish]
        if piece.stop_reason:
            answer.stop_reason = piece.stop_reason if piece.stop_token is None else piece.stop_token
        if self._output.metrics is None:
            self._output.metrics = RequestMetrics(piece.queue_seconds, piece.ttft_seconds, piece.seconds, piece.completion_tokens)
            self._output.num_cached_tokens = piece.cached_tokens

    def _logprobs(self, token: tuple[int, float, list[tuple[int, float]]]) -> dict[int, Logprob]:
        chosen, logprob, top = token
        text = self._tokenizer.token_text
        found = {chosen: Logprob(logprob, None, text(chosen))}
        for rank, (other, value) in enumerate(top, 1):
            found[other] = Logprob(value, rank, text(other))
        return found
