"""Answers as they come, for asyncio: vLLM's AsyncLLM."""

import asyncio
import atexit
import os
import random
import threading
import weakref
from collections.abc import AsyncGenerator
from contextlib import ExitStack
from typing import Any

from . import _quire
from .adapters import Adapters, check_adapter
from .answers import Answers, close_and_wait, raise_failure, submit_request
from .engine_args import AsyncEngineArgs, EngineArgs
from .errors import InvalidError, UnsupportedError
from .inputs import PromptType, encode_prompt, truncate
from .lora.request import LoRARequest
from .outputs import PoolingOutput, PoolingRequestOutput, RequestOutput
from .pooling_params import PoolingParams
from .sampling_params import RequestOutputKind, SamplingParams
from .tokenizer import Tokenizer


class _Reader:
    """A task that reads a request's answers, woken by the thread of the engine's queue."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.has_pieces = asyncio.Event()

    def wake(self) -> None:
        self.loop.call_soon_threadsafe(self.has_pieces.set)


class AsyncLLM:
    """A loaded model for tasks of asyncio, of one or several event loops. One thread serves all requests. Pieces that a
    slow task has not read are joined, so they never slow the engine down and take no more memory than the answer."""

    def __init__(self, model: str | EngineArgs, **options: Any) -> None:
        args = model if isinstance(model, EngineArgs) else AsyncEngineArgs.from_keywords(model=model, **options)
        self._pooling = args.pooling()
        self._engine = args.load()
        self._adapters = Adapters(self._engine, args.adapter_room())
        self._seeds = random.Random(args.seed)
        self._tokenizer = Tokenizer(self._engine)
        self._queue = _quire.AnswerQueue(self._engine)
        self._lock = threading.Lock()
        self._readers: dict[int, _Reader] = {}  # by ticket
        self._tickets: dict[str, int] = {}  # by request id; 0: being submitted
        self._closed = threading.Event()
        # Neither the thread nor atexit may keep the object, whose end closes the engine.
        self._thread = threading.Thread(target=_serve, args=(weakref.ref(self), self._queue, self._closed), name="quire", daemon=True)
        self._thread.start()
        atexit.register(_shutdown_at_exit, weakref.ref(self), os.getpid())

    @classmethod
    def from_engine_args(cls, engine_args: EngineArgs, **_: Any) -> "AsyncLLM":
        return cls(engine_args)

    def __reduce__(self) -> Any:
        raise TypeError("an AsyncLLM cannot be pickled or copied: it is threads and memory of this process. Pass its options, and load the model there")

    async def generate(
        self,
        prompt: PromptType,
        sampling_params: SamplingParams,
        request_id: str,
        *,
        lora_request: LoRARequest | None = None,
        priority: int = 0,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Yields the answers by sampling_params.output_kind. Leaving the loop, or cancelling the task, ends the request."""
        check_adapter(lora_request)
        if not isinstance(sampling_params, SamplingParams):
            raise TypeError(f"sampling_params must be SamplingParams, not {type(sampling_params).__name__}")
        at_end = sampling_params.output_kind is RequestOutputKind.FINAL_ONLY

        def submit(adapter: str) -> tuple[int, Any]:
            encoded = encode_prompt(self._engine, prompt)
            return submit_request(self._engine, self._queue, encoded, sampling_params, self._seeds, at_end=at_end, priority=priority, adapter=adapter)

        answers: Answers | None = None
        # Compiling a constraint may take a while.
        stream = self._pieces(submit, request_id, lora_request, sampling_params.structured_outputs is not None)
        try:
            async for sent, pieces in stream:
                if answers is None:
                    answers = Answers(request_id, sent, sampling_params, self._tokenizer, lora_request)
                answers.add(pieces)
                if answers.finished or not at_end:  # with at_end too, the first pieces may come early
                    yield answers.take()
                if answers.finished:
                    return
        finally:
            await stream.aclose()

    async def encode(
        self, prompt: PromptType, pooling_params: PoolingParams, request_id: str, *, lora_request: LoRARequest | None = None
    ) -> AsyncGenerator[PoolingRequestOutput[PoolingOutput], None]:
        """Yields one vector of length 1, or the results of a classifier as they are."""
        check_adapter(lora_request)
        if not isinstance(pooling_params, PoolingParams):
            raise TypeError(f"pooling_params must be PoolingParams, not {type(pooling_params).__name__}")
        info = self._engine.info()
        if pooling_params.dimensions not in (None, info["embedding_size"]):
            raise UnsupportedError(f"dimensions={pooling_params.dimensions} is not supported; this model's vectors have {info['embedding_size']}")

        def submit(adapter: str) -> tuple[int, Any]:
            encoded = truncate(encode_prompt(self._engine, prompt), pooling_params.truncate_prompt_tokens, info["max_model_len"])
            pooling = self._pooling or info["pooling"] or "mean"
            return self._queue.submit(encoded.ids, {}, True, pooling=pooling, cache_salt=encoded.cache_salt, adapter=adapter), encoded

        stream = self._pieces(submit, request_id, lora_request, False)
        try:
            async for sent, pieces in stream:
                raise_failure(pieces[0])
                data = pieces[0].take_embedding()
                if data is not None:
                    yield PoolingRequestOutput(request_id, PoolingOutput(data), sent.ids.tolist(), pieces[0].cached_tokens)
                return
        finally:
            await stream.aclose()

    async def abort(self, request_id: str | list[str]) -> None:
        """The requests end with finish_reason "abort". No effect on those that have ended."""
        for one in [request_id] if isinstance(request_id, str) else request_id:
            ticket = self._tickets.get(one)
            if ticket:
                self._queue.cancel(ticket)

    async def add_lora(self, lora_request: LoRARequest) -> bool:
        """Loads the adapter before a request needs it. False: it was loaded."""
        check_adapter(lora_request)
        return await asyncio.to_thread(self._adapters.add, lora_request)

    async def remove_lora(self, lora_id: int) -> bool:
        """Requests that run with it end with it. False: it was not loaded."""
        return self._adapters.remove(lora_id)

    async def list_loras(self) -> set[int]:
        return self._adapters.ids()

    async def get_tokenizer(self) -> Tokenizer:
        return self._tokenizer

    @property
    def is_running(self) -> bool:
        return not self._closed.is_set()

    @property
    def model_info(self) -> dict[str, Any]:
        return self._engine.info()

    def stats(self) -> dict[str, Any]:
        return self._engine.stats()

    def shutdown(self) -> None:
        """Cancels what runs, whose readers get a RuntimeError, and frees the model."""
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            readers = list(self._readers.values())
        self._queue.interrupt()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        for reader in readers:
            try:
                reader.wake()
            except RuntimeError:  # its loop is closed
                continue
        self._engine.close()

    def __del__(self) -> None:
        if hasattr(self, "_thread") and not self._closed.is_set():
            self._closed.set()
            self._queue.interrupt()

    async def _pieces(self, submit: Any, request_id: str, adapter: LoRARequest | None, slow: bool) -> AsyncGenerator[tuple[Any, list[_quire.Piece]], None]:
        """(prompt, pieces) whenever there are pieces, until the reader stops."""
        if not isinstance(request_id, str):
            raise TypeError(f"request_id must be a str, not {type(request_id).__name__}")
        if self._closed.is_set():
            raise RuntimeError("the engine is closed")
        if request_id in self._tickets:
            raise InvalidError(f"request_id {request_id!r} is in use")
        reader = _Reader()
        self._tickets[request_id] = ticket = 0
        in_use = ExitStack()  # of the adapter
        try:

            def start() -> tuple[int, Any, ExitStack]:
                with ExitStack() as in_use:
                    ticket, sent = submit(in_use.enter_context(self._adapters.use(adapter)))
                    return ticket, sent, in_use.pop_all()

            # Loading an adapter may take a while, too.
            ticket, sent, in_use = await self._start_in_thread(start) if slow or adapter else start()
            self._tickets[request_id] = ticket
            with self._lock:
                self._readers[ticket] = reader
            reader.has_pieces.set()  # the first ones may have come before the thread knew the reader
            while True:
                await reader.has_pieces.wait()
                reader.has_pieces.clear()
                if self._closed.is_set():
                    raise RuntimeError("the engine was shut down before the answer ended")
                if pieces := self._queue.take(ticket):
                    yield sent, pieces
        finally:
            del self._tickets[request_id]
            if ticket:
                self._forget(ticket)
            in_use.close()

    async def _start_in_thread(self, start: Any) -> tuple[int, Any, ExitStack]:
        started = asyncio.ensure_future(asyncio.to_thread(start))
        try:
            return await asyncio.shield(started)
        except asyncio.CancelledError:
            started.add_done_callback(self._drop)
            raise

    def _drop(self, started: "asyncio.Future[tuple[int, Any, ExitStack]]") -> None:
        if started.cancelled() or started.exception():
            return
        ticket, _, in_use = started.result()
        self._forget(ticket)
        in_use.close()

    def _forget(self, ticket: int) -> None:
        with self._lock:
            self._readers.pop(ticket, None)
        self._queue.forget(ticket)

    def _announce(self, ticket: int) -> None:
        with self._lock:
            reader = self._readers.get(ticket)
        if reader is None:
            return
        try:
            reader.wake()
        except RuntimeError:  # its loop was closed without ending its tasks
            self._forget(ticket)


AsyncLLMEngine = AsyncLLM


def _serve(reference: "weakref.ref[AsyncLLM]", queue: _quire.AnswerQueue, closed: threading.Event) -> None:
    while not closed.is_set():
        tickets = queue.wait(1.0)
        llm = reference()
        if llm is None:
            return
        for ticket in tickets:
            llm._announce(ticket)
        del llm


def _shutdown_at_exit(reference: "weakref.ref[AsyncLLM]", pid: int) -> None:
    llm = reference()
    if llm is not None and os.getpid() == pid:
        llm.shutdown()
        close_and_wait(llm._engine)
