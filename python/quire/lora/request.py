"""Which adapter answers a request."""

from dataclasses import dataclass

from ..errors import InvalidError


@dataclass(eq=False)
class LoRARequest:
    """vLLM's description of a LoRA adapter. lora_path: a PEFT directory, or a GGUF file of llama.cpp.

    lora_int_id names the adapter to the engine: two with one id must be the same. load_inplace: read the files again.
    """

    lora_name: str
    lora_int_id: int
    lora_path: str = ""
    base_model_name: str | None = None
    load_inplace: bool = False
    is_3d_lora_weight: bool = False  # concerns experts, which adapters cannot change here

    def __post_init__(self) -> None:
        if isinstance(self.lora_int_id, bool) or not isinstance(self.lora_int_id, int):
            raise TypeError(f"lora_int_id must be an int, not {type(self.lora_int_id).__name__}")
        if self.lora_int_id < 1:
            raise InvalidError(f"lora_int_id is {self.lora_int_id}: it must be at least 1")
        if not isinstance(self.lora_name, str):
            raise TypeError(f"lora_name must be a str, not {type(self.lora_name).__name__}")
        if not self.lora_path:
            raise InvalidError("lora_path is empty; pass a PEFT directory or a GGUF file")

    @property
    def adapter_id(self) -> int:
        return self.lora_int_id

    @property
    def name(self) -> str:
        return self.lora_name

    @property
    def path(self) -> str:
        return self.lora_path

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LoRARequest) and self.lora_name == other.lora_name

    def __hash__(self) -> int:
        return hash(self.lora_name)
