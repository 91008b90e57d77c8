"""Pressure totals of host and target, and a clear reason where there are none."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest
from hosttree import HostTree, context_for, read_table, target_of

from bottletop.collectors import psi
from bottletop.collectors.base import Unavailable
from bottletop.collectors.psi import PsiCollector, parse_pressure
from bottletop.model import Absent, State
from bottletop.tables.host import Psi

if TYPE_CHECKING:
    from pathlib import Path


def text(some: int, full: int | None = None) -> str:
    lines = f"some avg10=2.79 avg60=1.28 avg300=0.42 total={some}\n"
    return lines + (
        "" if full is None else f"full avg10=0.00 avg60=0.00 avg300=0.00 total={full}\n"
    )


@pytest.fixture
def tree(tmp_path: Path) -> HostTree:
    tree = HostTree(tmp_path)
    tree.write("proc/pressure/cpu", text(100, 0))
    tree.write("proc/pressure/io", text(300, 200))
    tree.write("proc/pressure/memory", text(5, 4))
    return tree


def test_host_totals_are_read_and_the_meaningless_one_is_not_zero(tree: HostTree) -> None:
    collector = PsiCollector(context_for(tree.live))
    collector.open()
    rows = read_table(collector, Psi)
    assert set(rows) == {"host/cpu", "host/io", "host/memory"}
    assert rows["host/io"] == {"some_us": 300, "full_us": 200}
    full = rows["host/cpu"]["full_us"]
    assert isinstance(full, Absent)
    assert full.state is State.NOT_APPLICABLE


def test_the_targets_own_group_is_read_beside_the_host(tree: HostTree) -> None:
    process = tree.process(5)
    tree.write("proc/5/cgroup", "0::/app\n")
    tree.write("sys/fs/cgroup/cgroup.controllers", "")
    tree.write("sys/fs/cgroup/app/cgroup.events", "populated 1\n")
    tree.write("sys/fs/cgroup/app/cpu.pressure", text(70))
    tree.write("sys/fs/cgroup/app/io.pressure", text(30, 20))
    rows = read_table(PsiCollector(context_for(tree.live, target_of(process))), Psi)
    assert rows["target/io"] == {"some_us": 30, "full_us": 20}
    before_5_13 = rows["target/cpu"]["full_us"]
    assert isinstance(before_5_13, Absent)
    assert before_5_13.state is State.UNSUPPORTED
    assert "target/memory" not in rows


def test_a_target_in_the_root_group_has_no_pressure_of_its_own(tree: HostTree) -> None:
    process = tree.process(5)
    tree.write("proc/5/cgroup", "0::/\n")
    tree.write("sys/fs/cgroup/cgroup.controllers", "")
    tree.write("sys/fs/cgroup/io.pressure", text(30, 20))
    rows = read_table(PsiCollector(context_for(tree.live, target_of(process))), Psi)
    assert not any(key.startswith("target/") for key in rows)


def test_a_target_that_is_moved_is_followed(tree: HostTree) -> None:
    process = tree.process(5)
    tree.write("sys/fs/cgroup/cgroup.controllers", "")
    for name, total in (("one", 1), ("two", 2)):
        tree.write(f"sys/fs/cgroup/{name}/cgroup.events", "")
        tree.write(f"sys/fs/cgroup/{name}/io.pressure", text(total, 0))
    tree.write("proc/5/cgroup", "0::/one\n")
    collector = PsiCollector(context_for(tree.live, target_of(process)))
    assert read_table(collector, Psi)["target/io"]["some_us"] == 1
    tree.write("proc/5/cgroup", "0::/two\n")
    for _ in range(psi.RELOCATE_EVERY):
        rows = read_table(collector, Psi)
    assert rows["target/io"]["some_us"] == 2


def test_a_kernel_without_pressure_says_so(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="CONFIG_PSI"):
        PsiCollector(context_for(HostTree(tmp_path).live)).open()


def test_pressure_that_is_switched_off_names_the_switch(
    tree: HostTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With psi=0 the files are there and reading them fails; no file of ours can do that.
    def refuse(path: str, size: int = 0) -> bytes:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported", path)

    monkeypatch.setattr(psi, "read_record", refuse)
    with pytest.raises(Unavailable, match="psi=1"):
        PsiCollector(context_for(tree.live)).open()


def test_pressure_files_that_vanish_make_the_source_unavailable(tree: HostTree) -> None:
    collector = PsiCollector(context_for(tree.live))
    collector.open()
    tree.remove("proc/pressure")
    with pytest.raises(Unavailable):
        collector.read()


def test_torn_pressure_lines_give_nothing() -> None:
    assert parse_pressure(b"some avg10=0.00 avg60=0.00 avg300=0.00 tot") == {}
    assert parse_pressure(b"some avg10=0.00 total=12\nfull avg10=0.00 total=") == {"some": 12}
    assert parse_pressure(b"other total=3\n") == {}
