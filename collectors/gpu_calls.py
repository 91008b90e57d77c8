"""Calls to one GPU through the binding: each at most once a read, and never again once refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bottletop.model import Absent, State, Value
from bottletop.tables.gpu_believed import believed

if TYPE_CHECKING:
    from bottletop.collectors.gpu_driver import Driver
    from bottletop.collectors.gpu_readings import Call, Reading

_SETTLED = frozenset({State.UNSUPPORTED, State.NOT_APPLICABLE})


def settled(value: Value) -> bool:
    """Whether something that never changes need not be asked again."""
    return not isinstance(value, Absent) or value.state in _SETTLED


class DeviceCalls:
    """What one handle answers. "Not supported" is remembered; every other error is asked again."""

    def __init__(self, driver: Driver, handle: object) -> None:
        self._driver = driver
        self._handle = handle
        self._refused: dict[tuple[str, tuple[int, ...]], Absent] = {}
        self._answers: dict[tuple[str, tuple[int, ...]], Any] = {}
        """Of this read: several columns may be parts of one answer."""

    def begin(self) -> None:
        """A new read begins: everything is asked afresh."""
        self._answers = {}

    def refuse(self, call: Call, why: Absent) -> None:
        """Never ask this, since it is known that the answer would mean nothing."""
        self._refused[call.function, call.args] = why

    def ask(self, call: Call) -> Any:
        """What the call returns, or the part of it that is wanted, or an `Absent`.

        Raises `GpuGone` for a lost GPU and `Unavailable` when the driver itself has gone.
        """
        key = call.function, call.args
        answer = self._refused.get(key)
        if answer is not None:
            return answer
        answer = self._answers.get(key)
        if answer is None:
            answer = self._driver.call(call.function, self._handle, *call.args)
            self._answers[key] = answer
            if isinstance(answer, Absent) and answer.state is State.UNSUPPORTED:
                self._refused[key] = answer
        if isinstance(answer, Absent) or call.part == "":
            return answer
        return answer[call.part] if isinstance(call.part, int) else getattr(answer, call.part)

    def first_of(self, reading: Reading) -> Value:
        """What the first of the reading's calls that is supported answers."""
        absent = Absent.unsupported("no call of this driver gives it")
        for call in reading.calls:
            answer = self.ask(call)
            if not isinstance(answer, Absent):
                return believed(reading.metric, answer, reading.scale)
            absent = answer
            if absent.state is not State.UNSUPPORTED:
                break
        return absent
