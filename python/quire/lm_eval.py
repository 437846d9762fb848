"""The model class "quire" of EleutherAI's lm-evaluation-harness.

import lm_eval
import quire.lm_eval

lm_eval.simple_evaluate(model="quire", model_args={"pretrained": "model.gguf"}, tasks=["arc_easy"])
"""

from typing import Any

from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from .inputs import TokensPrompt
from .llm import LLM
from .sampling_params import SamplingParams

_SCORING = SamplingParams(max_tokens=0, prompt_logprobs=1)
_IGNORED = {"do_sample", "num_beams", "num_return_sequences", "use_cache", "early_stopping", "pad_token_id", "eos_token_id"}


@register_model("quire")
class QuireLM(TemplateLM):
    """pretrained: what LLM takes as its model; other options are those of LLM. Batches are the engine's to make, so
    batch_size and device are ignored."""

    def __init__(
        self, pretrained: str, max_gen_toks: int = 256, batch_size: Any = None, max_batch_size: Any = None, device: Any = None, **options: Any
    ) -> None:
        super().__init__()
        self.llm = LLM(pretrained, **options)
        self.tokenizer = self.llm.get_tokenizer()
        self.max_gen_toks = int(max_gen_toks)
        self.max_length: int = self.llm.model_info["max_model_len"]

    @property
    def eot_token_id(self) -> int:
        token = self.tokenizer.eos_token_id
        return 0 if token is None else token

    @property
    def prefix_token_id(self) -> int:
        token = self.tokenizer.bos_token_id
        return self.eot_token_id if token is None else token

    @property
    def tokenizer_name(self) -> str:
        return str(self.llm.model_info["name"])

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """With the token that begins a text, if the model expects it; never with one that ends it."""
        ids = self.tokenizer.encode(string, False)
        bos = self.tokenizer.bos_token_id
        if add_special_tokens is False or bos is None or ids[:1] == [bos]:
            return ids
        return [bos, *ids] if self.tokenizer.encode(string)[:1] == [bos] else ids

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        text = self.tokenizer.apply_chat_template(
            chat_history, add_generation_prompt=add_generation_prompt, continue_final_message=not add_generation_prompt, tokenize=False
        )
        assert isinstance(text, str)
        return text

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        return "" if chat_template else None  # the engine has it

    def _loglikelihood_tokens(self, requests: list[tuple[Any, list[int], list[int]]], disable_tqdm: bool = False, **_: Any) -> list[tuple[float, bool]]:
        prompts = [TokensPrompt(prompt_token_ids=(context + continuation)[-self.max_length :]) for _, context, continuation in requests]
        outputs = self.llm.generate(prompts, _SCORING, use_tqdm=not disable_tqdm)
        results = []
        for (text, _context, continuation), output in zip(requests, outputs, strict=True):
            tokens = continuation[-(self.max_length - 1) :]  # the first token of a prompt has no probability
            positions = (output.prompt_logprobs or [])[-len(tokens) :] if tokens else []
            chosen = [position[token] for position, token in zip(positions, tokens, strict=True) if position is not None]
            result = (sum(one.logprob for one in chosen), all(one.rank == 1 for one in chosen))
            if text is not None:
                self.cache_hook.add_partial("loglikelihood", text, result)
            results.append(result)
        return results

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
        windows, owners = [], []
        for index, request in enumerate(requests):
            ids = self.tok_encode(request.args[0], add_special_tokens=False)
            for window in get_rolling_token_windows(token_list=ids, prefix_token=self.prefix_token_id, max_seq_len=self.max_length - 1, context_len=1):
                windows.append((None, *make_disjoint_window(window)))
                owners.append(index)
        totals = [0.0] * len(requests)
        for owner, (logprob, _) in zip(owners, self._loglikelihood_tokens(windows, disable_tqdm), strict=True):
            totals[owner] += logprob
        for request, total in zip(requests, totals, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return totals

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        prompts, params = [], []
        for context, options in (request.args for request in requests):
            options = dict(options)
            until = options.pop("until", None) or []
            longest = int(options.pop("max_gen_toks", options.pop("max_tokens", self.max_gen_toks)))
            sampled = options.get("do_sample", "temperature" in options)
            temperature = options.pop("temperature", 1.0 if sampled else 0.0) if sampled else 0.0
            options.pop("temperature", None)
            kept = {name: value for name, value in options.items() if name not in _IGNORED}
            stop = [one for one in ([until] if isinstance(until, str) else until) if one]
            params.append(SamplingParams(temperature=temperature, max_tokens=min(longest, self.max_length - 1), stop=stop, **kept))
            ids = self.tok_encode(context)
            prompts.append(TokensPrompt(prompt_token_ids=ids[-max(1, self.max_length - longest) :]))
        outputs = self.llm.generate(prompts, params, use_tqdm=not disable_tqdm)
        texts = [output.outputs[0].text for output in outputs]
        for request, text in zip(requests, texts, strict=True):
            self.cache_hook.add_partial("generate_until", request.args, text)
        return texts
