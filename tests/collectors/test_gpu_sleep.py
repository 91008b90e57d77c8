"""GPUs that sleep are not woken, idle ones are let go, and both are read again when they wake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bottletop.collectors.base import Unavailable
from bottletop.collectors.gpu_rest import REST_S
from bottletop.model import State
from bottletop.tables.gpu import ASLEEP, LOST, OK, Gpu, GpuProcess, GpuUtilSample
from nvml.pci import PciTree

if TYPE_CHECKING:
    from pathlib import Path

    from nvml.host import Host

    from .conftest import MakeHost

ONE = "GPU-00000000-0000-0000-0000-000000000000"
TWO = "GPU-00000000-0000-0000-0000-000000000001"
FIRST, SECOND = "0000:10:00.0", "0000:11:00.0"


@pytest.fixture
def tree(tmp_path: Path) -> PciTree:
    return PciTree(tmp_path / "sys")


def calls(host: Host) -> int:
    """Driver calls made so far."""
    return sum(stat.calls for stat in host.calls().values())


def test_a_host_whose_gpu_sleeps_says_so_and_does_not_even_open_the_driver(
    gpu_host: MakeHost, tree: PciTree
) -> None:
    tree.add(FIRST, status="suspended")
    host = gpu_host("gpu\n  busy 40", sys_root=tree.root)
    with pytest.raises(Unavailable, match="sleeps") as caught:
        host.open()
    assert caught.value.retry_s == 1
    assert not caught.value.denied
    assert calls(host) == 0
    tree.status(FIRST, "active")
    host.open()
    assert host.tick().number(Gpu.util_pct, ONE) == 40


def test_one_that_sleeps_is_shown_asleep_while_the_others_are_read(
    gpu_host: MakeHost, tree: PciTree
) -> None:
    tree.add(FIRST, status="suspended")
    tree.add(SECOND)
    host = gpu_host("gpu\n  busy 30\n  sleeps 0 8\ngpu\n  busy 60", sys_root=tree.root)
    host.open()
    read = host.ticks(6)[-1]
    assert [row.key for row in read.rows(Gpu)] == [TWO, "index 0"]
    assert read.number(Gpu.util_pct, TWO) == 60
    assert read.value(Gpu.health, "index 0") == ASLEEP
    assert read.value(Gpu.pci_bus_id, "index 0") == FIRST
    util = read.absent(Gpu.util_pct, "index 0")
    assert util.state is State.NOT_READ
    assert "asleep" in util.reason
    host.clock.step(3)
    tree.status(FIRST, "active")
    awake = host.tick()
    assert awake.number(Gpu.util_pct, ONE) == 30
    assert awake.rows(Gpu, "index 0") == []
    assert "wakes GPU 0" not in host.calls()


def test_an_idle_gpu_is_let_go_after_a_minute_and_read_when_somebody_uses_it(
    gpu_host: MakeHost, tree: PciTree
) -> None:
    tree.add(FIRST, control="auto")
    host = gpu_host("gpu\n  busy step 0 0 200 70\n  sleeps 65 200", sys_root=tree.root)
    host.open()
    assert {read.value(Gpu.health, ONE) for read in host.ticks(61)} == {OK}
    let_go = host.tick()
    assert let_go.value(Gpu.health, ONE) == ASLEEP
    assert "left alone" in let_go.absent(Gpu.power_w, ONE).reason
    assert host.calls()["nvmlShutdown"].calls == 1
    assert host.ask("exchanged").resting_gpus == {FIRST}
    tree.status(FIRST, "suspended")
    before = calls(host)
    asleep = host.ticks(130)
    assert {read.value(Gpu.health, ONE) for read in asleep} == {ASLEEP}
    assert asleep[-1].value(Gpu.model, ONE) == "NVIDIA H100 80GB HBM3"
    assert "a read would wake it" in asleep[-1].absent(Gpu.util_pct, ONE).reason
    assert calls(host) == before
    tree.status(FIRST, "active")
    host.clock.step(10)
    assert host.tick().number(Gpu.util_pct, ONE) == 70
    assert host.ask("exchanged").resting_gpus == frozenset()
    assert "wakes GPU 0" not in host.calls()


def test_a_gpu_with_a_process_is_never_let_go(gpu_host: MakeHost, tree: PciTree) -> None:
    tree.add(FIRST, control="auto")
    host = gpu_host("gpu\n  process 7 10 0 graphics", sys_root=tree.root)
    host.open()
    assert {read.value(Gpu.health, ONE) for read in host.ticks(100)} == {OK}


def test_one_that_does_not_fall_asleep_is_read_again(gpu_host: MakeHost, tree: PciTree) -> None:
    tree.add(FIRST, control="auto")
    host = gpu_host("gpu", sys_root=tree.root)
    host.open()
    health = [read.value(Gpu.health, ONE) for read in host.ticks(200)]
    assert health.count(ASLEEP) == REST_S - 1  # from the read that began it
    assert health[-1] == OK


def test_of_two_only_the_idle_one_is_let_go_and_no_sample_comes_twice(
    gpu_host: MakeHost, tree: PciTree
) -> None:
    tree.add(FIRST, control="auto")
    tree.add(SECOND, control="auto")
    host = gpu_host("gpu\n  sleeps 64 300\ngpu\n  busy 50\n  process 7 10 1", sys_root=tree.root)
    host.open()
    reads = host.ticks(62)
    tree.status(FIRST, "suspended")
    reads += host.ticks(60)
    assert reads[-1].value(Gpu.health, ONE) == ASLEEP
    assert reads[-1].number(Gpu.util_pct, TWO) == 50
    assert reads[-1].number(Gpu.index, TWO) == 1
    stamps = [t_ns for read in reads for t_ns, _ in read.series(GpuUtilSample.util_pct, TWO)]
    assert stamps == sorted(set(stamps))
    assert len(stamps) > 6 * 115
    assert "wakes GPU 0" not in host.calls()
    listed = [row.key for read in reads[-12:] for row in read.rows(GpuProcess)]
    assert set(listed) == {f"{TWO}/7"}


def test_what_sysfs_does_not_tell_changes_nothing(gpu_host: MakeHost, tree: PciTree) -> None:
    tree.add(FIRST, status="unsupported", control="on")
    host = gpu_host("gpu", sys_root=tree.root)
    host.open()
    assert {read.value(Gpu.health, ONE) for read in host.ticks(100)} == {OK}


def test_a_container_is_shown_its_own_gpus_and_not_what_else_is_on_the_bus(
    gpu_host: MakeHost, tree: PciTree
) -> None:
    tree.add(FIRST, status="suspended")
    tree.add(SECOND)
    tree.add("0000:99:00.0")  # not given to this container
    host = gpu_host("gpu\ngpu\n  busy 60", sys_root=tree.root)
    host.open()
    read = host.tick()
    assert [row.key for row in read.rows(Gpu)] == [TWO, "index 0"]
    assert read.value(Gpu.health, TWO) == OK


# -- plugged in and out --------------------------------------------------------------------------


def test_a_gpu_that_is_plugged_in_appears(gpu_host: MakeHost, tree: PciTree) -> None:
    tree.add(FIRST)
    host = gpu_host("order 0 0\norder 5 0 1\ngpu\n  busy 30\ngpu\n  busy 60", sys_root=tree.root)
    host.open()
    assert [row.key for row in host.ticks(4)[-1].rows(Gpu)] == [ONE]
    host.clock.step(1)
    tree.add(SECOND, driver="")
    assert [row.key for row in host.tick().rows(Gpu)] == [ONE]  # no driver has it yet
    tree.remove(SECOND)
    tree.add(SECOND)
    read = host.tick()
    assert read.number(Gpu.util_pct, ONE) == 30
    assert read.number(Gpu.util_pct, TWO) == 60


def test_a_gpu_that_is_pulled_out_is_shown_lost_and_the_others_live(
    gpu_host: MakeHost, tree: PciTree
) -> None:
    tree.add(FIRST)
    tree.add(SECOND)
    host = gpu_host("order 0 0 1\norder 5 1\ngpu\n  lost 5\ngpu\n  busy 60", sys_root=tree.root)
    host.open()
    host.ticks(4)
    tree.remove(FIRST)
    for read in host.ticks(8):
        assert read.value(Gpu.health, ONE) == LOST
        assert read.number(Gpu.util_pct, TWO) == 60
    assert read.number(Gpu.index, TWO) == 0
