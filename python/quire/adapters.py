"""The LoRA adapters of an engine: loaded when a request first names them, unloaded when others need their place."""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from . import _quire
from .errors import InvalidError, ResourceError
from .lora.request import LoRARequest

# How long requests that were cancelled may take to leave their adapter.
_SECONDS_TO_LEAVE = 10


@dataclass
class _Loaded:
    path: str
    name: str  # the engine's
    users: int = 0  # requests that run


class Adapters:
    """Thread-safe. room: how many fit; 0: requests that name one are refused."""

    def __init__(self, engine: _quire.Engine, room: int) -> None:
        self._engine, self._room = engine, room
        self._lock = threading.Lock()
        self._loaded: dict[int, _Loaded] = {}  # by id; what was used last is the last

    def ids(self) -> set[int]:
        with self._lock:
            return set(self._loaded)

    @contextmanager
    def use(self, request: LoRARequest | None) -> Iterator[str]:
        """The engine's name of the adapter, which stays loaded within the block; empty: none."""
        if request is None:
            yield ""
            return
        with self._lock:
            adapter = self._load(request)
            adapter.users += 1
        try:
            yield adapter.name
        finally:
            with self._lock:
                adapter.users -= 1

    def add(self, request: LoRARequest) -> bool:
        """Loads it now. False: it was loaded."""
        with self._lock:
            known = self._loaded.get(request.lora_int_id)
            return self._load(request) is not known

    def remove(self, lora_id: int) -> bool:
        """Requests that run with it end with it. False: it was not loaded."""
        with self._lock:
            return self._unload(lora_id)

    def waves(self, requests: Sequence[LoRARequest | None]) -> list[list[int]]:
        """Indices of requests, as many lists as it takes so that the adapters of each list fit together."""
        number: dict[int, int] = {}
        for one in requests:
            if one is not None:
                number.setdefault(one.lora_int_id, len(number) // max(1, self._room))
        waves: list[list[int]] = [[] for _ in range(1 + max(number.values(), default=0))]
        for index, one in enumerate(requests):
            waves[0 if one is None else number[one.lora_int_id]].append(index)
        return waves

    def _load(self, request: LoRARequest) -> _Loaded:
        if self._room == 0:
            raise InvalidError("lora_request needs LLM(enable_lora=True)")
        lora_id, path = request.lora_int_id, os.fspath(request.lora_path)
        adapter = self._loaded.get(lora_id)
        if adapter is not None and not request.load_inplace:
            if adapter.path != path:
                raise InvalidError(f"lora_int_id {lora_id} is the adapter {adapter.path} already, not {path}; give it an id of its own, or set load_inplace")
            self._loaded[lora_id] = self._loaded.pop(lora_id)
            return adapter
        unloaded = self._unload(lora_id)
        while len(self._loaded) >= self._room:
            idle = next((one for one, adapter in self._loaded.items() if adapter.users == 0), None)
            if idle is None:
                raise ResourceError(f"no place for the adapter {path}: all {self._room} are in use (max_loras, max_cpu_loras)")
            unloaded = self._unload(idle)
        # Names may be long, and those of two adapters the same.
        adapter = _Loaded(path, f"{lora_id} {request.lora_name[:50]}")
        self._add(adapter, unloaded)
        self._loaded[lora_id] = adapter
        return adapter

    def _unload(self, lora_id: int) -> bool:
        adapter = self._loaded.pop(lora_id, None)
        if adapter is not None:
            self._engine.remove_adapter(adapter.name)
        return adapter is not None

    def _add(self, adapter: _Loaded, waits: bool) -> None:
        deadline = time.monotonic() + _SECONDS_TO_LEAVE
        while True:
            try:
                return self._engine.add_adapter(adapter.name, adapter.path)
            except ResourceError:
                if not waits or time.monotonic() > deadline:
                    raise
            time.sleep(0.001)


def list_adapters(lora_request: Any, prompts: int) -> list[LoRARequest | None]:
    """One for all prompts, or one for each."""
    given = list(lora_request) if isinstance(lora_request, (list, tuple)) else [lora_request] * prompts
    for one in given:
        check_adapter(one)
    if len(given) != prompts:
        raise InvalidError(f"there are {prompts} prompts and {len(given)} lora_requests; give one for all, or as many")
    return given


def check_adapter(request: Any) -> None:
    if not isinstance(request, (LoRARequest, type(None))):
        raise TypeError(f"lora_request must be a LoRARequest, not {type(request).__name__}")
