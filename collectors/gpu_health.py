"""What a GPU says of its own health, and its NVLinks. Fills `gpu_health` and `gpu_link`.

All that is a field comes with one call for GPU and links together (nvmlDeviceGetFieldValues, the
scope being the link), then BAR1 and what an older driver gives by call only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bottletop.collectors.gpu_calls import settled
from bottletop.collectors.gpu_fields import FieldBatch, FieldReader
from bottletop.collectors.gpu_health_readings import (
    HEALTH_CALLS,
    HEALTH_FIELDS,
    LINK_COUNT,
    LINK_FIELDS,
    LINK_STATE,
    MARGINS,
    MAX_LINKS,
    THRESHOLDS,
    of_link,
)
from bottletop.model import NOT_READ, Absent, Metric, Row, State, Value
from bottletop.tables.gpu_health import GpuHealth, GpuLink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.collectors.gpu_calls import DeviceCalls
    from bottletop.collectors.gpu_driver import Driver
    from bottletop.collectors.gpu_part import Part

_NO_MARGIN = -1  # all ones, which as one margin among others may well be true


class Health:
    """Health and links of one GPU, for as long as it answers and MIG stays as it is."""

    def __init__(
        self, driver: Driver, handle: object, calls: DeviceCalls, part: Part, uuid: str
    ) -> None:
        self._driver = driver
        self._handle = handle
        self._calls = calls
        self._part = part
        self._uuid = uuid
        self._asked = [one for one in HEALTH_FIELDS if one.concerns(part.architecture)]
        self._once: dict[Metric, Value] = {
            one.metric: Absent(State.NOT_APPLICABLE, one.instead)
            for one in (*HEALTH_FIELDS, *THRESHOLDS)
            if not one.concerns(part.architecture)
        }
        """What such a part is not asked, and thresholds, which never change."""
        self._links: Sequence[int] | None = None
        self._fields: FieldReader | None = None

    def read(self, now_ns: int) -> tuple[Row, list[Row]]:
        """Rows of `gpu_health` and `gpu_link`. Raises `GpuGone` and `Unavailable`."""
        values = self._read_fields()
        cells = dict(self._once)
        cells.update(zip((one.metric for one in self._asked), values, strict=False))
        cells.update((one.metric, self._calls.first_of(one)) for one in HEALTH_CALLS)
        cells |= self._thresholds()
        if all(cells[metric] == _NO_MARGIN for metric in MARGINS):
            cells |= dict.fromkeys(MARGINS, Absent.implausible(_NO_MARGIN, "all of them alike"))
        row = GpuHealth.row(self._uuid, now_ns, self._part.worded(cells))
        return row, self._link_rows(now_ns, values[len(self._asked) :])

    def _read_fields(self) -> list[Value]:
        """Values of the fields that are asked of the GPU, then of those of each link."""
        if self._links is None:
            self._links = self._find_links()
        if self._fields is None:
            links = [reading for link in self._links or () for reading in of_link(link)]
            self._fields = FieldReader(
                self._driver, self._handle, [*self._asked, *links], self._calls.first_of
            )
        values = self._fields.read()
        if self._links is None:
            self._fields = None
        return values

    def _find_links(self) -> Sequence[int] | None:
        """Numbers of the links that there are; None where the driver fails to say."""
        count = FieldBatch(self._driver, self._handle, [LINK_COUNT]).read()[LINK_COUNT]
        if not isinstance(count, Absent):
            return range(int(count) if 0 <= count <= MAX_LINKS else 0)
        if count.state is not State.UNSUPPORTED:
            return None
        links = 0
        while links < MAX_LINKS:
            state = self._calls.ask(LINK_STATE._replace(args=(links,)))
            if isinstance(state, Absent):
                break
            links += 1
        return range(links)

    def _thresholds(self) -> dict[Metric, Value]:
        for reading in THRESHOLDS:
            if not settled(self._once.get(reading.metric, NOT_READ)):
                self._once[reading.metric] = self._calls.first_of(reading)
        return {reading.metric: self._once[reading.metric] for reading in THRESHOLDS}

    def _link_rows(self, now_ns: int, values: Sequence[Value]) -> list[Row]:
        rows = []
        metrics = [one.metric for one in LINK_FIELDS]
        for place, link in enumerate(self._links or ()):
            own = values[place * len(metrics) : (place + 1) * len(metrics)]
            cells = dict(zip(metrics, own, strict=True))
            state = cells[GpuLink.state]
            if isinstance(state, Absent) and state.state is State.UNSUPPORTED:
                continue  # counted, but not there
            cells |= {GpuLink.gpu: self._uuid, GpuLink.link: link}
            rows.append(GpuLink.row(f"{self._uuid}/{link}", now_ns, self._part.worded(cells)))
        return rows


def absent_row(uuid: str, now_ns: int, why: Absent) -> Row:
    """Health of a GPU that does not answer."""
    return GpuHealth.row(uuid, now_ns, dict.fromkeys(GpuHealth.columns, why))
