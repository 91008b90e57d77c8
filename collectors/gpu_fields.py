"""Field values in batches: one driver call for all of them (nvmlDeviceGetFieldValues)."""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING

import pynvml

from bottletop.collectors.gpu_driver import absence
from bottletop.model import Absent, State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bottletop.collectors.gpu_driver import Driver

_SLOT = struct.Struct("=IIqqIiQ")
"""nvmlFieldValue_t: id, scope, stamp, latency, value type, return code, 64-bit value.

Read as bytes, since every attribute of the binding's structures goes through Python code: 0.4 ms a
tick with 8 GPUs.
"""

_DECODE: dict[int, Callable[[int], float]] = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: lambda word: _reread(word, "d"),
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: lambda word: word & 0xFFFFFFFF,
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: lambda word: word,
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: lambda word: word,
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: lambda word: _reread(word, "q"),
    5: lambda word: _reread(word, "i"),  # signed int, not in older bindings
    6: lambda word: word & 0xFFFF,  # unsigned short, not in older bindings
}
NARROW = frozenset({pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, 5, 6})
"""Value types of 32 bits and less."""


def _reread(word: int, code: str) -> float:
    """The first bytes of a 64-bit word as another type, as a C union gives them."""
    value: float = struct.unpack_from(f"={code}", struct.pack("=Q", word))[0]
    return value


class FieldBatch:
    """A set of field ids of one GPU, read with one call into an array made once.

    Ids that turn out unsupported leave the array; they are answered from memory.
    """

    def __init__(self, driver: Driver, handle: object, ids: Iterable[int]) -> None:
        self._driver = driver
        self._handle = handle
        self._unsupported: dict[int, Absent] = {}
        self.narrow: set[int] = set()
        """Fields that the driver answers in 32 bits."""
        self.answered = False
        """Whether the driver has answered the batch itself, if only to say what it lacks."""
        self._load(list(dict.fromkeys(ids)))

    def _load(self, ids: list[int]) -> None:
        self._ids = ids
        self._values = (pynvml.c_nvmlFieldValue_t * len(ids))()
        for slot, field_id in zip(self._values, ids, strict=True):
            slot.fieldId = field_id
        self._bytes = memoryview(self._values).cast("B")

    def keep(self, ids: Iterable[int]) -> None:
        """Ask for these ids only, from now on."""
        wanted = set(ids)
        self._load([field_id for field_id in self._ids if field_id in wanted])

    def read(self) -> dict[int, float | Absent]:
        """Every field's value or why there is none. Raises `GpuGone` and `Unavailable`."""
        out: dict[int, float | Absent] = dict(self._unsupported)
        if not self._ids:
            return out
        code = self._driver.raw(
            "nvmlDeviceGetFieldValues",
            self._handle,
            ctypes.c_int(len(self._ids)),
            self._values,
        )
        if code != pynvml.NVML_SUCCESS:
            failed: dict[int, float | Absent] = dict.fromkeys(
                self._ids, code if isinstance(code, Absent) else absence(code)
            )
            self._forget(failed)
            self.answered = not self._ids
            return out | failed
        fresh = {
            field_id: self._value(field_id, kind, answer, word)
            for field_id, _, _, _, kind, answer, word in _SLOT.iter_unpack(self._bytes)
        }
        self._forget(fresh)
        self.answered = True
        return out | fresh

    def _value(self, field_id: int, kind: int, code: int, word: int) -> float | Absent:
        if code != pynvml.NVML_SUCCESS:
            if code == pynvml.NVML_ERROR_INVALID_ARGUMENT:  # an id that this driver does not know
                return absence(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
            return self._driver.judge(code)
        decode = _DECODE.get(kind)
        if decode is None:
            return Absent.implausible(kind, "of a type that nobody has named")
        if kind in NARROW:
            self.narrow.add(field_id)
        return decode(word)

    def _forget(self, answers: dict[int, float | Absent]) -> None:
        """Stop asking for what is not supported."""
        unsupported = {
            field_id: value
            for field_id, value in answers.items()
            if isinstance(value, Absent) and value.state is State.UNSUPPORTED
        }
        if unsupported:
            self._unsupported.update(unsupported)
            self.keep(field_id for field_id in self._ids if field_id not in unsupported)
