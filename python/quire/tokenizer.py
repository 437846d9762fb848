"""The model's tokenizer, with the methods of Hugging Face's that scripts for vLLM use."""

from collections.abc import Iterable
from typing import Any

from . import _quire
from .inputs import as_token_ids
from .messages import messages_json, options_json


class Tokenizer:
    def __init__(self, engine: _quire.Engine) -> None:
        self._engine = engine
        self._texts: dict[int, str] = {}

    @property
    def vocab_size(self) -> int:
        return self._engine.info()["vocab_size"]

    @property
    def bos_token_id(self) -> int | None:
        return self._engine.special_tokens().get("bos")

    @property
    def eos_token_id(self) -> int | None:
        return self._engine.special_tokens().get("eos")

    @property
    def pad_token_id(self) -> int | None:
        return self._engine.special_tokens().get("pad")

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return self._engine.encode(text, add_special_tokens).tolist()

    def decode(self, token_ids: Iterable[int] | int, skip_special_tokens: bool = False) -> str:
        ids: Any = [token_ids] if isinstance(token_ids, int) else token_ids
        if not hasattr(ids, "__len__"):
            ids = list(ids)
        return self._engine.decode(as_token_ids(ids, "token_ids"), skip_special_tokens) if len(ids) else ""

    def token_text(self, token_id: int) -> str:
        """As it stands within a text; half a character is U+FFFD."""
        if token_id not in self._texts:
            self._texts[token_id] = self._engine.token_bytes(token_id).decode("utf-8", "replace")
        return self._texts[token_id]

    def apply_chat_template(
        self,
        conversation: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        tokenize: bool = True,
        chat_template: str | None = None,
        **kwargs: Any,
    ) -> str | list[int]:
        """kwargs are variables of the template."""
        tools_text, kwargs_text = options_json(tools, kwargs)
        arguments = (messages_json(conversation), tools_text, kwargs_text, chat_template or "", add_generation_prompt, continue_final_message)
        return self._engine.encode_messages(*arguments).tolist() if tokenize else self._engine.render_messages(*arguments)
