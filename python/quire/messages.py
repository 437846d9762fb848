"""Chats as the templates take them: vLLM's and OpenAI's messages, as JSON."""

import json
from typing import Any

from .errors import InvalidError, UnsupportedError


def _text_of(content: Any, where: str) -> Any:
    """Parts of text are joined by line ends, as vLLM does for templates that take texts."""
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, (list, tuple)):
        raise TypeError(f"{where} must be a str or a list of parts, not {type(content).__name__}")
    texts = []
    for index, part in enumerate(content):
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict) and isinstance(part.get("text"), str) and part.get("type", "text") in ("text", "input_text", "output_text"):
            texts.append(part["text"])
        else:
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise UnsupportedError(f"{where}[{index}] is {kind!r}; only parts of text are supported")
    return "\n".join(texts)


def _calls_of(calls: Any, where: str) -> list[Any]:
    """Templates take the arguments of calls as objects; OpenAI's messages have their JSON text."""
    fitted = []
    for index, call in enumerate(calls):
        if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
            raise TypeError(f"{where}[{index}] must be a dict with a function")
        function = dict(call["function"])
        if isinstance(function.get("arguments"), str):
            try:
                parsed = json.loads(function["arguments"] or "{}")
            except ValueError as error:
                raise InvalidError(f"{where}[{index}].function.arguments is not JSON: {error}") from error
            function["arguments"] = parsed
        fitted.append({**call, "function": function})
    return fitted


def messages_json(messages: Any) -> str:
    if not isinstance(messages, (list, tuple)):
        raise TypeError(f"messages must be a list of dicts, not {type(messages).__name__}")
    fitted = []
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise TypeError(f"messages[{index}] must be a dict, not {type(message).__name__}")
        if not isinstance(message.get("role"), str):
            raise InvalidError(f"messages[{index}] needs a role, such as user")
        one = {name: value for name, value in message.items() if value is not None or name == "content"}
        if "content" in one:
            one["content"] = _text_of(one["content"], f"messages[{index}].content")
        elif not one.get("tool_calls"):
            raise InvalidError(f"messages[{index}] needs a content")
        if one.get("tool_calls"):
            one["tool_calls"] = _calls_of(one["tool_calls"], f"messages[{index}].tool_calls")
        fitted.append(one)
    return _dumps(fitted, "messages")


def options_json(tools: Any, template_kwargs: Any) -> tuple[str, str]:
    """For Engine.encode_messages: empty texts stand for none."""
    if tools is not None and not isinstance(tools, (list, tuple)):
        raise TypeError(f"tools must be a list of dicts, not {type(tools).__name__}")
    if template_kwargs is not None and not isinstance(template_kwargs, dict):
        raise TypeError(f"chat_template_kwargs must be a dict, not {type(template_kwargs).__name__}")
    return _dumps(list(tools), "tools") if tools else "", _dumps(template_kwargs, "chat_template_kwargs") if template_kwargs else ""


def _dumps(value: Any, name: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name} cannot be written as JSON: {error}") from error


def list_conversations(messages: Any) -> list[Any]:
    """One conversation, a list of dicts, or a list of such."""
    if not isinstance(messages, (list, tuple)):
        raise TypeError(f"messages must be a list of dicts, not {type(messages).__name__}")
    if not messages:
        raise InvalidError("messages is empty")
    return [messages] if isinstance(messages[0], dict) else list(messages)
