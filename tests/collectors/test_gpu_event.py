"""Events of the driver: fetched once, in order, from the GPUs that report them and are awake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bottletop.collectors.base import Unavailable
from bottletop.model import Absent, State, Value
from bottletop.store import Store
from bottletop.tables.gpu_health import (
    DOUBLE_BIT_ERROR,
    OTHER,
    PAGE_RETIREMENT,
    RECOVERY,
    UNAVAILABLE,
    XID,
    GpuEvent,
)
from nvml.pci import PciTree

if TYPE_CHECKING:
    from pathlib import Path

    from nvml.host import Host, Reading

    from .conftest import MakeHost

ONE = "GPU-00000000-0000-0000-0000-000000000000"
TWO = "GPU-00000000-0000-0000-0000-000000000001"
FIRST, SECOND = "0000:10:00.0", "0000:11:00.0"


def opened(host: Host) -> Host:
    host.open("gpu_event")
    return host


def tick(host: Host, seconds: float = 1.0) -> Reading:
    return host.tick(seconds, "gpu_event")


def seen(read: Reading) -> list[tuple[str, Value, Value]]:
    """(GPU, kind, Xid) of the rows of a read."""
    return [
        (row.key, row.values[GpuEvent.kind.index], row.values[GpuEvent.xid.index])
        for row in read.rows(GpuEvent)
    ]


def told(host: Host, ticks: int) -> list[tuple[str, Value]]:
    """(GPU, Xid) of all rows over so many ticks."""
    return [(key, xid) for _ in range(ticks) for key, _, xid in seen(tick(host))]


def test_events_come_once_in_order_with_number_and_instance(gpu_host: MakeHost) -> None:
    host = opened(
        gpu_host(
            """
            gpu
              event 1.5 0x8 13 instance 3 0
              event 1.2 0x8 79
            gpu
              event 1.7 0x2
              event 5.5 0x400
              event 5.6 0x4000
              event 5.7 0x8000
            """
        )
    )
    assert seen(tick(host)) == []
    read = tick(host)
    assert [(key, kind) for key, kind, _ in seen(read)] == [
        *((ONE, XID), (ONE, XID)),
        (TWO, DOUBLE_BIT_ERROR),
    ]
    early, late = read.rows(GpuEvent, ONE)
    assert [row.values[GpuEvent.xid.index] for row in (early, late)] == [79, 13]
    assert late.values[GpuEvent.gpu_instance.index] == 3
    assert late.values[GpuEvent.compute_instance.index] == 0
    whole = early.values[GpuEvent.gpu_instance.index]
    assert isinstance(whole, Absent)
    assert whole.state is State.NOT_APPLICABLE
    assert read.absent(GpuEvent.xid, TWO).state is State.NOT_APPLICABLE
    assert read.number(GpuEvent.bits, TWO) == 2
    kinds = [kind for _ in range(5) for _, kind, _ in seen(tick(host))]
    assert kinds == [PAGE_RETIREMENT, UNAVAILABLE, RECOVERY]


def test_events_of_one_read_all_reach_the_store(gpu_host: MakeHost) -> None:
    host = opened(gpu_host("gpu\n" + "".join(f"  event 0.5 0x8 {31 + n}\n" for n in range(5))))
    read, store = tick(host), Store()
    for sample in read.samples:
        store.ingest(sample)
    now_ns = host.clock.monotonic_ns()
    kept = store.view(now_ns + 1000).series(GpuEvent.xid, ONE, 60)
    assert list(kept.values) == [31, 32, 33, 34, 35]


def test_what_came_before_registration_is_not_delivered(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  event 2 0x8 79\n  event 6 0x8 31", start_s=5)
    opened(host)
    assert told(host, 5) == [(ONE, 31)]


def test_a_storm_is_taken_in_parts_and_nothing_of_it_lost(gpu_host: MakeHost) -> None:
    host = opened(gpu_host("gpu\n" + "".join(f"  event 0.5 0x8 {1 + n}\n" for n in range(150))))
    sizes = [len(tick(host).rows(GpuEvent)) for _ in range(4)]
    assert sizes == [64, 64, 22, 0]


def test_only_what_a_gpu_supports_is_asked_for(gpu_host: MakeHost) -> None:
    host = opened(
        gpu_host(
            """
            gpu
              event_types 0xa
              event 1.5 0x8 43
              event 1.6 0x1000
            gpu
              event_types 0
              event 1.5 0x8 79
            """
        )
    )
    assert told(host, 4) == [(ONE, 43)]
    # Unsupported is remembered: no second try.
    told(host, 60)
    assert host.calls()["nvmlEventSetCreate"].calls == 1


def test_without_any_gpu_that_reports_the_source_says_so(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu\n  event_types 0")
    with pytest.raises(Unavailable, match="no GPU here reports events"):
        opened(host)
    calls = host.calls()
    assert calls["nvmlShutdown"].calls == calls["nvmlInitWithFlags"].calls == 1


def test_a_driver_too_old_for_events_says_so(gpu_host: MakeHost) -> None:
    host = gpu_host("gpu", without=("nvmlEventSetCreate",))
    with pytest.raises(Unavailable, match="too old"):
        opened(host)


def test_a_driver_without_instances_is_read_through_its_older_call(gpu_host: MakeHost) -> None:
    host = opened(gpu_host("gpu\n  event 0.5 0x8 48", without=("nvmlEventSetWait_v2",)))
    read = tick(host)
    assert read.number(GpuEvent.xid, ONE) == 48
    assert read.absent(GpuEvent.gpu_instance, ONE).state is State.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("number", "state"), [(999, State.UNSUPPORTED), (4294967295, State.IMPLAUSIBLE)]
)
def test_an_xid_without_a_possible_number_is_kept_without_it(
    gpu_host: MakeHost, number: int, state: State
) -> None:
    read = tick(opened(gpu_host(f"gpu\n  event 0.5 0x8 {number}")))
    assert read.value(GpuEvent.kind, ONE) == XID
    assert read.absent(GpuEvent.xid, ONE).state is state


def test_an_event_that_nobody_named_is_kept_with_its_bits(gpu_host: MakeHost) -> None:
    # Registered for 0x8 and 0x2; a driver that sends both at once sends an unknown kind.
    read = tick(opened(gpu_host("gpu\n  event 0.5 0xa 1")))
    assert read.value(GpuEvent.kind, ONE) == OTHER
    assert read.number(GpuEvent.bits, ONE) == 0xA


def test_a_lost_gpu_neither_silences_the_others_nor_is_forgotten(gpu_host: MakeHost) -> None:
    host = opened(
        gpu_host(
            """
            gpu
              event 3.2 0x8 79
              lost 3.5 10
              event 50 0x8 31
            gpu
              event 3.4 0x8 63
              event 6.5 0x8 64
              event 50 0x8 65
            """
        )
    )
    assert told(host, 12) == [(ONE, 79), (TWO, 63), (TWO, 64)]
    assert told(host, 45) == [(ONE, 31), (TWO, 65)]
    # One set at first, one without the lost GPU, one when it answered again.
    assert host.calls()["nvmlEventSetCreate"].calls == 3


def test_a_reloaded_driver_is_opened_again_without_a_restart(gpu_host: MakeHost) -> None:
    host = opened(
        gpu_host("fail nvml* not-loaded 3.5 8\ngpu\n  event 2.5 0x8 13\n  event 11 0x8 14")
    )
    assert told(host, 3) == [(ONE, 13)]
    with pytest.raises(Unavailable, match="not loaded"):
        tick(host)
    with pytest.raises(Unavailable, match="no NVIDIA driver"):
        tick(host)
    host.clock.step(5)
    assert told(host, 4) == [(ONE, 14)]
    host.close("gpu_event")
    host.close("gpu_event")


def test_a_second_costs_one_call_while_nothing_happens(gpu_host: MakeHost) -> None:
    host = opened(gpu_host("gpu\ngpu\ngpu"))
    before = sum(stat.calls for stat in host.calls().values())
    told(host, 20)
    assert sum(stat.calls for stat in host.calls().values()) - before == 20
    own = host.ask("own")
    assert own.driver["gpu_event"].calls == own.nvml_calls


# -- GPUs that sleep, come and go ------------------------------------------------------------------


def test_a_gpu_that_sleeps_is_not_woken_to_listen_to_it(gpu_host: MakeHost, tmp_path: Path) -> None:
    tree = PciTree(tmp_path / "sys")
    tree.add(FIRST, status="suspended")
    host = gpu_host("gpu", sys_root=tree.root)
    with pytest.raises(Unavailable, match="sleeps"):
        opened(host)
    assert not host.calls()


def test_while_one_sleeps_the_others_are_opened_by_address(
    gpu_host: MakeHost, tmp_path: Path
) -> None:
    tree = PciTree(tmp_path / "sys")
    tree.add(FIRST, status="suspended")
    tree.add(SECOND)
    host = opened(
        gpu_host(
            """
            gpu
              sleeps 0 5
              event 8.5 0x8 31
            gpu
              event 2.5 0x8 13
            """,
            sys_root=tree.root,
        )
    )
    assert told(host, 4) == [(TWO, 13)]
    host.clock.step(2)
    tree.status(FIRST, "active")
    assert told(host, 4) == [(ONE, 31)]
    assert "wakes GPU 0" not in host.calls()


def test_a_gpu_that_is_left_alone_is_let_go(gpu_host: MakeHost, tmp_path: Path) -> None:
    tree = PciTree(tmp_path / "sys")
    tree.add(FIRST, control="auto")
    host = opened(gpu_host("gpu\n  event 5.5 0x8 31\n  event 8.5 0x8 32", sys_root=tree.root))
    host.ask("tell", "resting_gpus", frozenset({FIRST}))
    tick(host)
    assert host.calls()["nvmlShutdown"].calls == 1
    with pytest.raises(Unavailable, match="sleeps"):
        tick(host)
    host.ask("tell", "resting_gpus", frozenset())
    host.clock.step(4)
    assert told(host, 4) == [(ONE, 32)]


def test_a_gpu_that_is_plugged_in_is_listened_to(gpu_host: MakeHost, tmp_path: Path) -> None:
    tree = PciTree(tmp_path / "sys")
    tree.add(FIRST)
    host = opened(
        gpu_host(
            """
            order 0 0
            order 3.5 0 1
            gpu
              event 6.4 0x8 13
            gpu
              event 6.5 0x8 14
            """,
            sys_root=tree.root,
        )
    )
    told(host, 3)
    tree.add(SECOND)
    assert told(host, 4) == [(ONE, 13), (TWO, 14)]
