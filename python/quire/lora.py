"""LoRA adapters, which the engine does not apply yet. The class is here so that scripts get an error that says so."""

from dataclasses import dataclass
from typing import Any

from .errors import UnsupportedError


@dataclass
class LoRARequest:
    """vLLM's description of an adapter. Passing one to a method raises UnsupportedError."""

    lora_name: str
    lora_int_id: int
    lora_path: str = ""


def refuse_lora(lora_request: Any) -> None:
    given = lora_request if isinstance(lora_request, (list, tuple)) else [lora_request]
    if any(one is not None for one in given):
        raise UnsupportedError("lora_request: LoRA adapters are not supported yet; merge the adapter into the model, or pass None")
