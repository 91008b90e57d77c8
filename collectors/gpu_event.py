"""Xid errors and other events that the NVIDIA driver reports. Fills `gpu_event`.

Source: nvmlEventSetWait, once a second, never waiting for an event. The driver queues events from
the moment of registration: nothing that happened before bottletop started is delivered, and the
kernel log alone knows of it. Events carry no time of their own; a row is stamped with the moment it
was fetched, which is at most a period late. Without privilege a MIG GPU reports only what concerns
it as a whole.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, ClassVar

from bottletop.collectors.base import Unavailable
from bottletop.collectors.gpu_places import awake_places, known_to_sleep
from bottletop.linux.pci import PciBus
from bottletop.model import NS_PER_S, Row, Sample, State, Table
from bottletop.tables.gpu_health import GpuEvent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.collectors.base import Context
    from bottletop.collectors.gpu_driver import Driver
    from bottletop.collectors.gpu_event_set import Event, EventSet

MAX_EVENTS = 64
"""Of one read. A GPU in trouble may report without end; the rest waits in the driver's queue."""
REGISTER_AGAIN_S = 30


class GpuEventCollector:
    """Listens to every GPU that is awake and reports events. It never wakes one that sleeps."""

    name: ClassVar[str] = "gpu_event"
    tables: ClassVar[tuple[type[Table], ...]] = (GpuEvent,)
    period_s: ClassVar[float] = 1.0
    blocking: ClassVar[bool] = True

    def __init__(self, context: Context) -> None:
        self._context = context
        self._clock = context.clock
        self._bus = PciBus(context.roots)
        self._driver: Driver | None = None
        self._events: EventSet | None = None
        self._present: tuple[frozenset[str], frozenset[str]] = frozenset(), frozenset()
        self._again_ns: int | None = None

    def open(self) -> None:
        """Initialise the driver and register. Raises `Unavailable` saying what to do."""
        from bottletop.collectors.gpu_driver import Driver, NoDriver

        self.close()
        self._present = self._look()
        driver = Driver(
            self._clock, self._context.roots, self._context.stats, GpuEventCollector.name
        )
        try:
            driver.open()
        except NoDriver:
            raise Unavailable("no NVIDIA driver here; `gpu` says more") from None
        self._driver = driver
        try:
            self._register(driver)
        except Unavailable:
            self.close()
            raise

    def _look(self) -> tuple[frozenset[str], frozenset[str]]:
        """Addresses of the GPUs on the bus, and of those to be left alone. Asks no driver.

        Raises `Unavailable` where that is all of them.
        """
        present, asleep = known_to_sleep(self._bus, self._context.exchange.resting_gpus)
        if present and present == asleep:
            raise Unavailable("the GPU sleeps and is not woken to listen to it", retry_s=1)
        return present, asleep

    def _register(self, driver: Driver) -> None:
        from bottletop.collectors.gpu_event_set import EventSet

        _, asleep = self._present
        events = self._events = EventSet(driver)
        events.register(awake_places(driver.gpu_count(), self._bus, asleep))
        if not events.keys:
            key, why = next(iter(events.refusals.items()), ("", None))
            raise Unavailable(f"no GPU here reports events: {key}: {why}")
        failed = [why for why in events.refusals.values() if why.state is not State.UNSUPPORTED]
        self._again_ns = (
            self._clock.monotonic_ns() + REGISTER_AGAIN_S * NS_PER_S if failed else None
        )

    def close(self) -> None:
        """Let set and driver go. Never raises, may be called twice."""
        driver, self._driver = self._driver, None
        events, self._events = self._events, None
        if driver is None:
            return
        if events is not None:
            # The driver may be gone already, and took the set along.
            with contextlib.suppress(Unavailable):
                events.close()
        driver.close()

    def read(self) -> Sequence[Sample]:
        """Take what the driver has queued. Raises `Unavailable` when it has gone."""
        began_ns = self._clock.monotonic_ns()
        try:
            found = self._drain()
        except Unavailable:
            self.close()  # here, in the thread that may block
            raise
        ended_ns = self._clock.monotonic_ns()
        rows = tuple(_row(event, ended_ns + at) for at, event in enumerate(found))
        return (Sample(self.name, GpuEvent, ended_ns, ended_ns - began_ns, rows),)

    def _drain(self) -> list[Event]:
        if self._driver is None or self._events is None:
            self.open()
        driver, events = self._driver, self._events
        assert driver is not None
        assert events is not None
        found = events.drain(MAX_EVENTS)
        # What is found is worth more than what goes wrong now: that comes up at the next read.
        with contextlib.suppress(Unavailable):
            self._follow(driver, events)
        return found

    def _follow(self, driver: Driver, events: EventSet) -> None:
        """Register anew where the GPUs are others than they were, or one may be to be had now."""
        now_ns = self._clock.monotonic_ns()
        if known_to_sleep(self._bus, self._context.exchange.resting_gpus) != self._present:
            # One sleeps, woke up, came or went. Only shutting the driver down lets a GPU go.
            self.open()
        elif events.is_broken or (self._again_ns is not None and now_ns >= self._again_ns):
            try:
                events.close()
                self._register(driver)
            except Unavailable:
                self.close()
                raise


def _row(event: Event, t_ns: int) -> Row:
    return GpuEvent.row(
        event.key,
        t_ns,
        {
            GpuEvent.kind: event.kind,
            GpuEvent.xid: event.xid,
            GpuEvent.bits: event.bits,
            GpuEvent.gpu_instance: event.gpu_instance,
            GpuEvent.compute_instance: event.compute_instance,
        },
    )
