"""Field values in batches: one driver call for all of them (nvmlDeviceGetFieldValues).

A field is asked for in a scope: 0 is the GPU itself; of a link it is the link's number, of power 1
is the whole module.
"""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING

import pynvml

from bottletop.collectors.gpu_driver import absence
from bottletop.model import Absent, State, Value
from bottletop.tables.gpu_believed import believed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from bottletop.collectors.gpu_driver import Driver
    from bottletop.collectors.gpu_readings import Field, Reading
    from bottletop.model import Metric

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
_NARROW = Absent.unsupported("this driver counts in 32 bits, which wrap faster than they are read")
NARROW = frozenset({pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, 5, 6})
"""Value types of 32 bits and less."""


def _reread(word: int, code: str) -> float:
    """The first bytes of a 64-bit word as another type, as a C union gives them."""
    value: float = struct.unpack_from(f"={code}", struct.pack("=Q", word))[0]
    return value


class FieldBatch:
    """A set of fields of one GPU, read with one call into an array made once.

    Fields that turn out unsupported leave the array; they are answered from memory.
    """

    def __init__(self, driver: Driver, handle: object, fields: Iterable[Field]) -> None:
        self._driver = driver
        self._handle = handle
        self._unsupported: dict[Field, Absent] = {}
        self.narrow: set[Field] = set()
        """Fields that the driver answers in 32 bits."""
        self.answered = False
        """Whether the driver has answered the batch itself, if only to say what it lacks."""
        self._load(list(dict.fromkeys(fields)))

    def _load(self, fields: list[Field]) -> None:
        self._fields = fields
        self._values = (pynvml.c_nvmlFieldValue_t * len(fields))()
        for slot, field in zip(self._values, fields, strict=True):
            slot.fieldId, slot.scopeId = field.id, field.scope
        self._bytes = memoryview(self._values).cast("B")

    def keep(self, fields: Iterable[Field]) -> None:
        """Ask for these only, from now on."""
        wanted = set(fields)
        self._load([field for field in self._fields if field in wanted])

    def read(self) -> dict[Field, float | Absent]:
        """Every field's value or why there is none. Raises `GpuGone` and `Unavailable`."""
        out: dict[Field, float | Absent] = dict(self._unsupported)
        if not self._fields:
            self.answered = True
            return out
        code = self._driver.raw(
            "nvmlDeviceGetFieldValues",
            self._handle,
            ctypes.c_int(len(self._fields)),
            self._values,
        )
        if code != pynvml.NVML_SUCCESS:
            failed: dict[Field, float | Absent] = dict.fromkeys(
                self._fields, code if isinstance(code, Absent) else absence(code)
            )
            self._forget(failed)
            self.answered = not self._fields
            return out | failed
        # By place, not by what the slot says of itself: the driver may have written over that.
        fresh = {
            field: self._value(field, kind, answer, word)
            for field, (_, _, _, _, kind, answer, word) in zip(
                self._fields, _SLOT.iter_unpack(self._bytes), strict=True
            )
        }
        self._forget(fresh)
        self.answered = True
        return out | fresh

    def _value(self, field: Field, kind: int, code: int, word: int) -> float | Absent:
        if code != pynvml.NVML_SUCCESS:
            if code == pynvml.NVML_ERROR_INVALID_ARGUMENT:  # an id that this driver does not know
                return absence(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
            return self._driver.judge(code)
        decode = _DECODE.get(kind)
        if decode is None:
            return Absent.implausible(kind, "of a type that nobody has named")
        if kind in NARROW:
            self.narrow.add(field)
        return decode(word)

    def supports(self, field: Field) -> bool:
        """Whether the driver has not said that it lacks this one."""
        return field not in self._unsupported

    def _forget(self, answers: Mapping[Field, float | Absent]) -> None:
        """Stop asking for what is not supported."""
        unsupported = {
            field: value
            for field, value in answers.items()
            if isinstance(value, Absent) and value.state is State.UNSUPPORTED
        }
        if unsupported:
            self._unsupported.update(unsupported)
            self.keep(field for field in self._fields if field not in unsupported)


class FieldReader:
    """Readings of one GPU that are fields, in one batch: of each the first field it supports.

    Which that is shows at the first answer; the others are not asked for again. What no field gives
    is left to `otherwise`, which knows the calls.
    """

    def __init__(
        self,
        driver: Driver,
        handle: object,
        readings: Sequence[Reading],
        otherwise: Callable[[Reading], Value],
    ) -> None:
        self._readings = readings
        self._otherwise = otherwise
        self._batch = FieldBatch(
            driver, handle, [field for reading in readings for field in reading.fields]
        )
        self._chosen: list[Field] | None = None

    def read(self) -> list[Value]:
        """The values, in the order of the readings. Raises `GpuGone` and `Unavailable`."""
        answers = self._batch.read()
        chosen = self._chosen
        if chosen is None:
            chosen = [_choose(reading, answers) for reading in self._readings]
            if self._batch.answered:
                self._chosen = chosen
                self._batch.keep(chosen)
        return [
            self._value(reading, field, answers[field])
            for reading, field in zip(self._readings, chosen, strict=True)
        ]

    def _value(self, reading: Reading, field: Field, value: float | Absent) -> Value:
        if isinstance(value, Absent):
            unsupported = value.state is State.UNSUPPORTED
            return self._otherwise(reading) if unsupported and reading.calls else value
        if reading.wide and field in self._batch.narrow:
            return _NARROW
        if reading.signed and field in self._batch.narrow and value >= 2**31:
            value -= 2**32  # some drivers write a signed number where they announce an unsigned one
        return believed(reading.metric, value, reading.scale * field.scale)

    @property
    def settled(self) -> bool:
        """Whether the driver has said which fields it has."""
        return self._chosen is not None

    def answers(self, metric: Metric) -> bool:
        """Whether a field gives this column; False before the first answer."""
        if self._chosen is None:
            return False
        return any(
            reading.metric is metric and self._batch.supports(field)
            for reading, field in zip(self._readings, self._chosen, strict=True)
        )


def _choose(reading: Reading, answers: Mapping[Field, float | Absent]) -> Field:
    """The first field that is supported, or the first of all."""
    for field in reading.fields:
        value = answers[field]
        if not (isinstance(value, Absent) and value.state is State.UNSUPPORTED):
            return field
    return reading.fields[0]
