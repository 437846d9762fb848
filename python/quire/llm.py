"""Answers to many prompts at once: vLLM's LLM."""

import atexit
import os
import random
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any

import numpy as np

from . import _quire
from .adapters import Adapters, list_adapters
from .answers import Answers, close_and_wait, raise_failure, submit_request
from .engine_args import EngineArgs
from .errors import InvalidError, UnsupportedError
from .inputs import EncodedPrompt, PromptType, encode_prompt, list_prompts, truncate
from .lora.request import LoRARequest
from .messages import list_conversations, messages_json, options_json
from .outputs import (
    ClassificationOutput,
    ClassificationRequestOutput,
    EmbeddingOutput,
    EmbeddingRequestOutput,
    PoolingOutput,
    PoolingRequestOutput,
    RequestOutput,
    ScoringOutput,
    ScoringRequestOutput,
)
from .pooling_params import PoolingParams
from .sampling_params import SamplingParams
from .tokenizer import Tokenizer

# How long Ctrl-C may have to wait.
_SECONDS_PER_WAIT = 0.1

Progress = bool | Callable[..., Any]
Loras = LoRARequest | Sequence[LoRARequest | None] | None


class LLM:
    """A loaded model. Each method runs a batch and waits for it; Ctrl-C cancels the batch. May be used by several
    threads. A `with` block or close() frees the model.

    Options are those of EngineArgs; others are members of Quire's EngineOptions, such as threads=4.
    """

    def __init__(self, model: str, **options: Any) -> None:
        args = EngineArgs.from_keywords(model=model, **options)
        self._pooling = args.pooling()
        self._engine = args.load()
        self._adapters = Adapters(self._engine, args.adapter_room())
        self._seeds = random.Random(args.seed)
        self._ids = count()
        self._tokenizer = Tokenizer(self._engine)
        # Threads of the engine must not outlive the interpreter.
        atexit.register(_close_at_exit, weakref.ref(self), os.getpid())

    def close(self) -> None:
        """Cancels what runs, which raises RuntimeError there, and frees the model."""
        self._engine.close()

    def __enter__(self) -> "LLM":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("an LLM cannot be pickled or copied: it is threads and memory of this process. Pass its options, and load the model there")

    def get_tokenizer(self) -> Tokenizer:
        return self._tokenizer

    def get_default_sampling_params(self) -> SamplingParams:
        """What the model's authors recommend."""
        return SamplingParams(**self._engine.info()["sampling_defaults"])

    @property
    def model_info(self) -> dict[str, Any]:
        """Sizes, types and memory: ModelInfo of include/quire/engine.h."""
        return self._engine.info()

    def stats(self) -> dict[str, Any]:
        """Counters of the engine: EngineStats of include/quire/engine.h."""
        return self._engine.stats()

    # ---- text ----

    def generate(
        self,
        prompts: PromptType | Sequence[PromptType],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: Progress = True,
        lora_request: Loras = None,
        priority: list[int] | None = None,
    ) -> list[RequestOutput]:
        """The answers, in the order of the prompts. lora_request: one for all prompts, or one for each. If a request fails, all are cancelled and its error is raised."""
        all_prompts = list_prompts(prompts)
        params = self._params_of(sampling_params, len(all_prompts))
        adapters = list_adapters(lora_request, len(all_prompts))
        return self._generate([encode_prompt(self._engine, one) for one in all_prompts], params, use_tqdm, adapters, priority)

    def chat(
        self,
        messages: Sequence[Any],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: Progress = True,
        lora_request: Loras = None,
        chat_template: str | None = None,
        chat_template_content_format: str = "auto",
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: list[dict[str, Any]] | None = None,
        chat_template_kwargs: dict[str, Any] | None = None,
        mm_processor_kwargs: dict[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """One conversation, or a list of them. chat_template: Jinja source in place of the model's. Calls of tools are in the answers' texts, in the model's syntax."""
        if not isinstance(chat_template, (str, type(None))):
            raise TypeError(f"chat_template must be a str, not {type(chat_template).__name__}")
        if mm_processor_kwargs:
            raise UnsupportedError("mm_processor_kwargs is not supported; only texts are")
        if chat_template_content_format not in ("auto", "string"):
            raise UnsupportedError(f"chat_template_content_format={chat_template_content_format!r} is not supported; use auto or string")
        options = options_json(tools, chat_template_kwargs)
        conversations = list_conversations(messages)
        params = self._params_of(sampling_params, len(conversations))
        adapters = list_adapters(lora_request, len(conversations))
        prompts = []
        for one in conversations:
            arguments = (messages_json(one), *options, chat_template or "", add_generation_prompt, continue_final_message)
            prompts.append(EncodedPrompt(self._engine.encode_messages(*arguments), self._engine.render_messages(*arguments)))
        return self._generate(prompts, params, use_tqdm, adapters, None)

    def beam_search(self, prompts: Any, params: Any, **_: Any) -> None:
        raise UnsupportedError("beam search is not supported; use generate() with n, and choose by cumulative_logprob")

    # ---- vectors and scores ----

    def embed(
        self,
        prompts: PromptType | Sequence[PromptType],
        *,
        use_tqdm: Progress = True,
        pooling_params: PoolingParams | None = None,
        truncate_prompt_tokens: int | None = None,
        lora_request: Loras = None,
    ) -> list[EmbeddingRequestOutput]:
        """A vector of length 1 for each prompt."""
        pooled = self._pool(self._texts(prompts, pooling_params, truncate_prompt_tokens), use_tqdm, labels=False, params=pooling_params, lora_request=lora_request)
        return [EmbeddingRequestOutput(i, EmbeddingOutput(data), ids, cached) for i, data, ids, cached in pooled]

    def classify(
        self,
        prompts: PromptType | Sequence[PromptType],
        *,
        use_tqdm: Progress = True,
        pooling_params: PoolingParams | None = None,
        truncate_prompt_tokens: int | None = None,
        lora_request: Loras = None,
    ) -> list[ClassificationRequestOutput]:
        """The probabilities of a classifier's classes, by softmax; of its only class by sigmoid. With use_activation=False
        its results as they are."""
        pooled = self._pool(self._texts(prompts, pooling_params, truncate_prompt_tokens), use_tqdm, labels=True, params=pooling_params, lora_request=lora_request)
        return [ClassificationRequestOutput(i, ClassificationOutput(_probabilities(data, pooling_params).tolist()), ids, cached) for i, data, ids, cached in pooled]

    def encode(
        self,
        prompts: PromptType | Sequence[PromptType],
        pooling_params: PoolingParams | None = None,
        *,
        use_tqdm: Progress = True,
        truncate_prompt_tokens: int | None = None,
        lora_request: Loras = None,
        pooling_task: str | None = None,
    ) -> list[PoolingRequestOutput[PoolingOutput]]:
        """What embed() or classify() return, as arrays; or with the task token_embed the hidden states of all tokens
        [tokens, hidden], each of length 1 unless use_activation is False. pooling_task: None: embed or classify, by the model."""
        task = pooling_task or (pooling_params.task if pooling_params else None) or ("classify" if self._engine.info()["labels"] else "embed")
        if task == "token_embed":
            arrays = self._arrays(self._texts(prompts, pooling_params, truncate_prompt_tokens), "hidden_states", use_tqdm, pooling_params, lora_request)
            if pooling_params is None or pooling_params.use_activation is not False:
                for _, data, _, _ in arrays:
                    data /= np.maximum(np.linalg.norm(data, axis=1, keepdims=True), np.finfo(np.float32).tiny)
            return [PoolingRequestOutput(i, PoolingOutput(data), ids, cached) for i, data, ids, cached in arrays]
        if task not in ("embed", "classify"):
            raise UnsupportedError(f"pooling_task={task!r} is not supported; use embed, classify or token_embed")
        pooled = self._pool(self._texts(prompts, pooling_params, truncate_prompt_tokens), use_tqdm, labels=task == "classify", params=pooling_params, lora_request=lora_request)
        return [PoolingRequestOutput(i, PoolingOutput(_probabilities(data, pooling_params) if task == "classify" else data), ids, cached) for i, data, ids, cached in pooled]

    def score(
        self,
        data_1: str | list[str],
        data_2: str | list[str],
        *,
        use_tqdm: Progress = True,
        pooling_params: PoolingParams | None = None,
        truncate_prompt_tokens: int | None = None,
        lora_request: Loras = None,
    ) -> list[ScoringRequestOutput]:
        """How well each text of data_2 fits data_1, which is one text or as many. A classifier of pairs reads both; of
        an embedding model it is the cosine."""
        queries, documents = _texts_of(data_1, "data_1"), _texts_of(data_2, "data_2")
        if len(queries) not in (1, len(documents)):
            raise InvalidError(f"data_1 has {len(queries)} texts and data_2 {len(documents)}; give one text, or as many")
        info = self._engine.info()
        limit = _limit_of(pooling_params, truncate_prompt_tokens)
        if info["labels"] == 1 or info["score"] == "yes_no":
            most = 0 if limit is None else info["max_model_len"] if limit == -1 else limit
            prompts = []
            for query, document in zip(queries * (len(documents) // len(queries)), documents, strict=True):
                ids, second = self._engine.encode_pair(query, document, most)
                prompts.append(EncodedPrompt(ids, second_text=second))
            pooled = self._pool(prompts, use_tqdm, labels=True, params=pooling_params, lora_request=lora_request)
            return [ScoringRequestOutput(i, ScoringOutput(_quire.pair_score(data, info["score"])), ids, cached) for i, data, ids, cached in pooled]
        if info["labels"] or not info["pooling"]:
            raise UnsupportedError(f"{info['name']} does not score texts; load a cross-encoder, Qwen3-Reranker or an embedding model")
        pooled = self._pool(self._texts([*queries, *documents], pooling_params, limit), use_tqdm, labels=False, params=pooling_params, lora_request=lora_request)
        firsts, seconds = pooled[: len(queries)] * (len(documents) // len(queries)), pooled[len(queries) :]
        results = []
        for (i, a, a_ids, a_cached), (_, b, b_ids, b_cached) in zip(firsts, seconds, strict=True):
            results.append(ScoringRequestOutput(i, ScoringOutput(float(np.dot(a.astype(np.float64), b))), a_ids + b_ids, a_cached + b_cached))
        return results

    # ---- logits ----

    def logits(
        self,
        prompts: PromptType | Sequence[PromptType],
        *,
        all_tokens: bool = False,
        use_tqdm: Progress = True,
        lora_request: Loras = None,
    ) -> list["np.ndarray[Any, np.dtype[np.float32]]"]:
        """The model's logits after each prompt [vocab], or after each of its tokens [tokens, vocab], before any sampling
        parameter. Arrays over the engine's memory, without a copy."""
        encoded = [encode_prompt(self._engine, one) for one in list_prompts(prompts)]
        arrays = self._arrays(encoded, "token_logits" if all_tokens else "logits", use_tqdm, None, lora_request)
        return [data if all_tokens else data[0] for _, data, _, _ in arrays]

    # ---- batches ----

    def _params_of(self, params: Any, prompts: int) -> list[SamplingParams]:
        if params is None:
            params = self.get_default_sampling_params()
        if isinstance(params, SamplingParams):
            return [params] * prompts
        if not isinstance(params, Sequence) or not all(isinstance(one, SamplingParams) for one in params):
            raise TypeError(f"sampling_params must be SamplingParams or a list of them, not {type(params).__name__}")
        if len(params) != prompts:
            raise InvalidError(f"there are {prompts} prompts and {len(params)} sampling_params; give one for all, or as many")
        return list(params)

    def _generate(
        self, prompts: list[EncodedPrompt], params: list[SamplingParams], use_tqdm: Progress, adapters: list[LoRARequest | None], priority: list[int] | None
    ) -> list[RequestOutput]:
        if priority is not None and len(priority) != len(prompts):
            raise InvalidError(f"there are {len(prompts)} prompts and {len(priority)} priorities; give as many")
        ids = [str(next(self._ids)) for _ in prompts]
        answers: dict[int, Answers] = {}  # by prompt
        tickets: dict[int, Answers] = {}

        def submit(queue: _quire.AnswerQueue, index: int, adapter: str) -> None:
            one = params[index]
            ticket, sent = submit_request(
                self._engine, queue, prompts[index], one, self._seeds, at_end=True, priority=priority[index] if priority else 0, adapter=adapter
            )
            tickets[ticket] = answers[index] = Answers(ids[index], sent, one, self._tokenizer, adapters[index])

        self._run(adapters, submit, lambda ticket, pieces: tickets[ticket].add(pieces), use_tqdm)
        return [answers[index].whole() for index in range(len(prompts))]

    def _run(self, adapters: list[LoRARequest | None], submit: Callable[..., None], take: Callable[..., None], use_tqdm: Progress) -> None:
        """submit(queue, index, adapter's name) for each request, take(ticket, pieces) when it has ended. Requests whose
        adapters do not fit together run one group after the other."""
        with _open_queue(self._engine) as queue, _Bar(use_tqdm, len(adapters)) as bar:
            for wave in self._adapters.waves(adapters):
                with ExitStack() as in_use:
                    for index in wave:
                        submit(queue, index, in_use.enter_context(self._adapters.use(adapters[index])))
                    for ticket, pieces in _collect(queue, len(wave)):
                        take(ticket, pieces)
                        bar.advance()

    def _texts(self, prompts: Any, params: PoolingParams | None, limit: int | None) -> list[EncodedPrompt]:
        limit = _limit_of(params, limit)
        most = self._engine.info()["max_model_len"]
        return [truncate(encode_prompt(self._engine, one), limit, most) for one in list_prompts(prompts)]

    def _pool(
        self, prompts: list[EncodedPrompt], use_tqdm: Progress, *, labels: bool, params: PoolingParams | None, lora_request: Loras
    ) -> list[tuple[str, "np.ndarray[Any, Any]", list[int], int]]:
        """(request id, results, prompt, cached tokens) of each prompt. labels: of a classifier."""
        info = self._engine.info()
        if labels and not info["labels"] and info["score"] != "yes_no":
            raise UnsupportedError(f"{info['name']} is no classifier; use embed()")
        if not labels and info["labels"]:
            raise UnsupportedError(f"{info['name']} is a classifier and makes no embeddings; use classify() or score()")
        if params is not None and params.dimensions not in (None, info["embedding_size"]):
            raise UnsupportedError(f"dimensions={params.dimensions} is not supported; this model's vectors have {info['embedding_size']}")
        if not labels and params is not None and params.use_activation is False:
            raise UnsupportedError("use_activation=False is not supported; embeddings have length 1. The task token_embed gives the hidden states as they are")
        return self._results(prompts, use_tqdm, lora_request, pooling=self._pooling or info["pooling"] or "mean")

    def _arrays(
        self, prompts: list[EncodedPrompt], array: str, use_tqdm: Progress, params: PoolingParams | None, lora_request: Loras
    ) -> list[tuple[str, "np.ndarray[Any, Any]", list[int], int]]:
        """As _pool(), with arrays of two dimensions."""
        info = self._engine.info()
        width = info["hidden" if array == "hidden_states" else "vocab_size"]
        if params is not None and params.dimensions not in (None, width):
            raise UnsupportedError(f"dimensions={params.dimensions} is not supported; this model's hidden states have {width}")
        return [(i, data.reshape(-1, width), ids, cached) for i, data, ids, cached in self._results(prompts, use_tqdm, lora_request, array=array)]

    def _results(
        self, prompts: list[EncodedPrompt], use_tqdm: Progress, lora_request: Loras, **wanted: str
    ) -> list[tuple[str, "np.ndarray[Any, Any]", list[int], int]]:
        adapters = list_adapters(lora_request, len(prompts))
        indices: dict[int, int] = {}  # of tickets
        results: list[Any] = [None] * len(prompts)

        def submit(queue: _quire.AnswerQueue, index: int, adapter: str) -> None:
            one = prompts[index]
            second = {} if one.second_text is None else {"second_text": one.second_text}
            indices[queue.submit(one.ids, {}, True, cache_salt=one.cache_salt, adapter=adapter, **wanted, **second)] = index

        def take(ticket: int, pieces: list[_quire.Piece]) -> None:
            raise_failure(pieces[0])
            results[indices[ticket]] = (pieces[0].take_embedding(), pieces[0].cached_tokens)

        self._run(adapters, submit, take, use_tqdm)
        return [(str(next(self._ids)), data, prompt.ids.tolist(), cached) for (data, cached), prompt in zip(results, prompts, strict=True)]


@contextmanager
def _open_queue(engine: _quire.Engine) -> Iterator[_quire.AnswerQueue]:
    """Cancels what an exception leaves, whose traceback may keep the queue."""
    queue = _quire.AnswerQueue(engine)
    try:
        yield queue
    finally:
        queue.cancel_all()


def _collect(queue: _quire.AnswerQueue, left: int) -> Iterator[tuple[int, list[_quire.Piece]]]:
    """(ticket, pieces) of requests as they end. Signals are handled between waits."""
    while left > 0:
        for ticket in queue.wait(_SECONDS_PER_WAIT):
            left -= 1
            yield ticket, queue.take(ticket)


def _limit_of(params: PoolingParams | None, limit: int | None) -> int | None:
    """How many tokens to keep: the argument, or that of the parameters."""
    if not isinstance(params, (PoolingParams, type(None))):
        raise TypeError(f"pooling_params must be PoolingParams, not {type(params).__name__}")
    if limit is None and params is not None:
        limit = params.truncate_prompt_tokens
    return PoolingParams(truncate_prompt_tokens=limit).truncate_prompt_tokens  # checked


class _Bar:
    """A bar of tqdm, or of a function with its parameters; or none."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._bar: Any = None
        if progress and total:
            self._bar = (progress if callable(progress) else _tqdm())(total=total, desc="Processed prompts", unit="prompt", dynamic_ncols=True)

    def __enter__(self) -> "_Bar":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def advance(self) -> None:
        if self._bar is not None:
            self._bar.update(1)


def _tqdm() -> Callable[..., Any]:
    from tqdm.auto import tqdm

    return tqdm


def _probabilities(results: "np.ndarray[Any, Any]", params: PoolingParams | None = None) -> "np.ndarray[Any, Any]":
    """Softmax of a classifier's results; the sigmoid of a single one."""
    if params is not None and params.use_activation is False:
        return results
    if len(results) == 1:
        return 1 / (1 + np.exp(-results))
    powers = np.exp(results - results.max())
    return powers / powers.sum()


def _texts_of(data: Any, name: str) -> list[str]:
    texts = [data] if isinstance(data, str) else data
    if not isinstance(texts, (list, tuple)) or not all(isinstance(one, str) for one in texts):
        raise TypeError(f"{name} must be a str or a list of them")
    if not texts:
        raise InvalidError(f"{name} is empty")
    return list(texts)


def _close_at_exit(reference: "weakref.ref[LLM]", pid: int) -> None:
    llm = reference()
    if llm is not None and os.getpid() == pid:
        close_and_wait(llm._engine)
