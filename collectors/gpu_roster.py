"""The NVIDIA GPUs of a host as the PCI bus shows them: which are asked, which are left to sleep."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bottletop.collectors.gpu_places import awake_places, known_to_sleep
from bottletop.collectors.gpu_rest import RESTING, SUSPENDED, Rest

if TYPE_CHECKING:
    from bottletop.collectors.base import Exchange
    from bottletop.linux.pci import PciBus
    from bottletop.model import Absent, Value


class Sleeper(NamedTuple):
    """A GPU that is not asked for anything."""

    place: int
    """Among the GPUs of the bus; nearly always that in the driver's list."""
    address: str
    why: Absent


class Roster:
    """Follows the bus. GPUs that come and go, fall asleep and wake are seen at the next `follow`.

    It tells `Exchange.resting_gpus` which GPUs are left alone, so that nobody else holds them.
    """

    def __init__(self, bus: PciBus, exchange: Exchange) -> None:
        self._bus = bus
        self._exchange = exchange
        self._rests: dict[str, Rest] = {}
        self._present: frozenset[str] = frozenset()
        self._asleep: frozenset[str] = frozenset()

    @property
    def all_asleep(self) -> bool:
        """Whether there is a GPU, and none that may be asked."""
        return bool(self._present) and self._present == self._asleep

    def follow(self, now_ns: int) -> bool:
        """Look at the bus; returns whether the GPUs to be asked are others than before."""
        before = self._present, self._asleep
        for rest in self._rests.values():
            rest.follow(now_ns)
        resting = frozenset(address for address, rest in self._rests.items() if rest.is_on)
        self._exchange.resting_gpus = resting
        self._present, self._asleep = known_to_sleep(self._bus, resting)
        return (self._present, self._asleep) != before

    def observe(self, now_ns: int, address: str, *, util_pct: Value, processes: Value) -> None:
        """Take in what a read of one GPU has shown: idle for long, it is left alone."""
        if address in self._present:
            rest = self._rests.setdefault(address, Rest(self._bus, address))
            rest.observe(now_ns, util_pct=util_pct, processes=processes)

    def awake(self, count: int) -> list[tuple[int, str]]:
        """Of `count` GPUs in the driver's list those to open: place and, if by that, address."""
        return awake_places(count, self._bus, self._asleep)

    def sleepers(self) -> list[Sleeper]:
        """The GPUs that are left alone, in the order of their addresses."""
        return [
            Sleeper(place, one, SUSPENDED if self._bus.is_asleep(one) else RESTING)
            for place, one in enumerate(sorted(self._present))
            if one in self._asleep
        ]
