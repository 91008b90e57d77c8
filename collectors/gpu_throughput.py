"""PCIe throughput where nothing better tells of it: a look of 20 ms, rarely.

Source: nvmlDeviceGetPcieThroughput. It measures during the call and blocks for the 20 ms of its
window, holding a lock that the watched job may need, so it is left to parts that have neither byte
counters (fields 197 and 198) nor GPM, which came with Hopper. A look in thirty seconds sees one
part in 1500 of the time: it says that bytes moved then, and nothing of the mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bottletop.collectors.gpu_readings import HOPPER, Call, Reading
from bottletop.model import NOT_READ, NS_PER_S, Absent, Metric, State, Value
from bottletop.tables.gpu import Gpu

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.collectors.gpu_calls import DeviceCalls
    from bottletop.collectors.gpu_part import Part

LOOK_PERIOD_S = 30
"""A GPU is asked for one direction, the other one in turn, at most this often."""
KEPT_S = 3 * LOOK_PERIOD_S
TX, RX = 0, 1
KILO = 1e3

LOOKS = (
    Reading(
        Gpu.pcie_rx_rate_bytes_per_s,
        (Call("nvmlDeviceGetPcieThroughput", (RX,)),),
        scale=KILO,
        every_s=2 * LOOK_PERIOD_S,
        before=HOPPER,
    ),
    Reading(
        Gpu.pcie_tx_rate_bytes_per_s,
        (Call("nvmlDeviceGetPcieThroughput", (TX,)),),
        scale=KILO,
        every_s=2 * LOOK_PERIOD_S,
        before=HOPPER,
    ),
)

_NEEDLESS = Absent(State.NOT_APPLICABLE, "not asked: byte counters or GPM say more at less cost")
_OLD = Absent(State.STALE, "not looked at for long: the call blocks the driver")


class PcieLooks:
    """Rare looks at one GPU's link, for as long as it answers."""

    def __init__(self, calls: DeviceCalls, part: Part) -> None:
        self._calls = calls
        known = part.architecture is not None and not part.beside_cpu
        self._blind = known and all(look.concerns(part.architecture) for look in LOOKS)
        self._wanted = False
        self._turn = 0
        self.due_ns = 0
        self._seen: dict[Metric, tuple[int, Value]] = {}

    def due(self, now_ns: int) -> bool:
        """Whether a look is wanted and permitted by the clock."""
        return self._wanted and now_ns >= self.due_ns

    def read(
        self, now_ns: int, cells: Mapping[Metric, Value], *, look: bool
    ) -> dict[Metric, Value]:
        """Both columns; with `look` after blocking for 20 ms. `cells` are those of this read.

        Raises `GpuGone` and `Unavailable`.
        """
        counters = (cells[Gpu.pcie_rx_bytes], cells[Gpu.pcie_tx_bytes])
        self._wanted = self._blind and all(
            isinstance(one, Absent) and one.state is State.UNSUPPORTED for one in counters
        )
        if not self._wanted:
            return {reading.metric: _NEEDLESS for reading in LOOKS}
        if look and self.due(now_ns):
            reading = LOOKS[self._turn % len(LOOKS)]
            self._turn += 1
            self.due_ns = now_ns + LOOK_PERIOD_S * NS_PER_S
            self._seen[reading.metric] = now_ns, self._calls.first_of(reading)
        return {reading.metric: self._shown(reading.metric, now_ns) for reading in LOOKS}

    def _shown(self, metric: Metric, now_ns: int) -> Value:
        seen_ns, value = self._seen.get(metric, (now_ns, NOT_READ))
        return _OLD if now_ns - seen_ns > KEPT_S * NS_PER_S else value
