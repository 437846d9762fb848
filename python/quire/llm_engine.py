"""Answers to requests that are added one by one: vLLM's LLMEngine."""

import atexit
import os
import random
import weakref
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from . import _quire
from .adapters import Adapters, check_adapter
from .answers import Answers, submit_request
from .engine_args import EngineArgs
from .errors import InvalidError, ResourceError
from .inputs import EncodedPrompt, PromptType, encode_prompt
from .llm import _SECONDS_PER_WAIT, _close_at_exit
from .lora.request import LoRARequest
from .outputs import RequestOutput
from .sampling_params import RequestOutputKind, SamplingParams
from .tokenizer import Tokenizer


@dataclass
class _Waiting:
    request_id: str
    prompt: EncodedPrompt
    params: SamplingParams
    adapter: LoRARequest | None
    priority: int


@dataclass
class _Running:
    answers: Answers
    ticket: int
    adapter: ExitStack  # closed when the answers have ended


class LLMEngine:
    """A loaded model. The engine computes in the background; step() only waits for new outputs. Not thread-safe."""

    def __init__(self, engine_args: EngineArgs) -> None:
        self._engine = engine_args.load()
        self._adapters = Adapters(self._engine, engine_args.adapter_room())
        self._seeds = random.Random(engine_args.seed)
        self._tokenizer = Tokenizer(self._engine)
        self._queue = _quire.AnswerQueue(self._engine)
        self._waiting: list[_Waiting] = []  # for a place for their adapter
        self._running: dict[int, _Running] = {}  # by ticket
        self._ids: set[str] = set()
        atexit.register(_close_at_exit, weakref.ref(self), os.getpid())

    @classmethod
    def from_engine_args(cls, engine_args: EngineArgs, **_: Any) -> "LLMEngine":
        return cls(engine_args)

    def __reduce__(self) -> Any:
        raise TypeError("an LLMEngine cannot be pickled or copied: it is threads and memory of this process. Pass its options, and load the model there")

    def __del__(self) -> None:
        if hasattr(self, "_queue") and not self._engine.closed:
            self._queue.cancel_all()

    def close(self) -> None:
        """Cancels what runs, and frees the model."""
        self._engine.close()

    def add_request(
        self,
        request_id: str,
        prompt: PromptType,
        params: SamplingParams,
        arrival_time: float | None = None,
        lora_request: LoRARequest | None = None,
        tokenization_kwargs: dict[str, Any] | None = None,
        trace_headers: Any = None,
        priority: int = 0,
    ) -> str:
        """Its answers come from step(). A request whose adapter has no place waits until those of others have ended."""
        if not isinstance(request_id, str):
            raise TypeError(f"request_id must be a str, not {type(request_id).__name__}")
        if not isinstance(params, SamplingParams):
            raise TypeError(f"params must be SamplingParams, not {type(params).__name__}; LLM has embed() and encode()")
        if tokenization_kwargs:
            raise InvalidError("tokenization_kwargs is not supported; pass prompt_token_ids")
        check_adapter(lora_request)
        if request_id in self._ids:
            raise InvalidError(f"request_id {request_id!r} is in use")
        request = _Waiting(request_id, encode_prompt(self._engine, prompt), params, lora_request, priority)
        self._ids.add(request_id)
        if self._waiting or not self._start(request):
            self._waiting.append(request)
        return request_id

    def abort_request(self, request_ids: str | list[str]) -> None:
        """The requests end without an output. No effect on those that have ended."""
        ids = {request_ids} if isinstance(request_ids, str) else set(request_ids)
        self._waiting = [one for one in self._waiting if one.request_id not in ids]
        for running in [one for one in self._running.values() if one.answers.request_id in ids]:
            self._queue.forget(running.ticket)
            self._end(running)
        self._ids -= ids

    def has_unfinished_requests(self) -> bool:
        return bool(self._ids)

    def get_num_unfinished_requests(self) -> int:
        return len(self._ids)

    def step(self) -> list[RequestOutput]:
        """What is new since the last call, by the output_kind of each request; waits a little if there is nothing yet. If a
        request fails, its error is raised, and the others go on."""
        while self._waiting and self._start(self._waiting[0]):
            del self._waiting[0]
        outputs = []
        for ticket in self._queue.wait(_SECONDS_PER_WAIT) if self._running else []:
            running = self._running[ticket]
            answers = running.answers
            try:
                answers.add(self._queue.take(ticket))
            except Exception:
                self._queue.forget(ticket)
                self._end(running)
                raise
            if answers.finished:
                self._end(running)
            if answers.finished or answers.kind is not RequestOutputKind.FINAL_ONLY:
                outputs.append(answers.take())
        return outputs

    def add_lora(self, lora_request: LoRARequest) -> bool:
        """Loads the adapter before a request needs it. False: it was loaded."""
        check_adapter(lora_request)
        return self._adapters.add(lora_request)

    def remove_lora(self, lora_id: int) -> bool:
        """Requests that run with it end with it. False: it was not loaded."""
        return self._adapters.remove(lora_id)

    def list_loras(self) -> set[int]:
        return self._adapters.ids()

    def get_tokenizer(self) -> Tokenizer:
        return self._tokenizer

    @property
    def model_info(self) -> dict[str, Any]:
        return self._engine.info()

    def stats(self) -> dict[str, Any]:
        return self._engine.stats()

    def _start(self, request: _Waiting) -> bool:
        """False: its adapter has no place yet."""
        at_end = request.params.output_kind is RequestOutputKind.FINAL_ONLY
        try:
            with ExitStack() as in_use:
                try:
                    adapter = in_use.enter_context(self._adapters.use(request.adapter))
                except ResourceError:
                    if self._running:
                        return False
                    raise
                ticket, sent = submit_request(
                    self._engine, self._queue, request.prompt, request.params, self._seeds, at_end=at_end, priority=request.priority, adapter=adapter
                )
                answers = Answers(request.request_id, sent, request.params, self._tokenizer, request.adapter)
                self._running[ticket] = _Running(answers, ticket, in_use.pop_all())
        except Exception:
            self._ids.discard(request.request_id)
            self._waiting = [one for one in self._waiting if one is not request]
            raise
        return True

    def _end(self, running: _Running) -> None:
        del self._running[running.ticket]
        self._ids.discard(running.answers.request_id)
        running.adapter.close()
