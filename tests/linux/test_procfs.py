"""Parsers of /proc take what the kernel writes, whatever a program calls itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hosttree import HostTree, stat_line
from hypothesis import given
from hypothesis import strategies as st

from bottletop.linux import procfs

if TYPE_CHECKING:
    from pathlib import Path

names = st.binary(min_size=0, max_size=64).filter(lambda name: b"\0" not in name)


@given(comm=names, state=st.sampled_from("RSDTtZXI"), start=st.integers(0, 2**63))
def test_any_bytes_in_a_command_name_leave_the_other_fields_alone(
    comm: bytes, state: str, start: int
) -> None:
    line = stat_line(42, comm, state=state, parent=7, start=start, user=11, system=13, block_io=5)
    stat = procfs.parse_stat(line)
    assert stat.comm == comm
    assert (stat.pid, stat.state, stat.parent_pid, stat.start_ticks) == (42, state, 7, start)
    assert (stat.user_ticks, stat.system_ticks, stat.block_io_ticks) == (11, 13, 5)
    assert procfs.parse_state(line) == state
    assert procfs.parse_thread_stat(line) == (comm, state, stat.major_faults, 11, 13, 5)


@given(st.binary(max_size=200))
def test_garbage_is_refused_or_parsed_but_never_surprises(raw: bytes) -> None:
    try:
        stat = procfs.parse_stat(raw)
    except ValueError:
        return
    assert stat.pid >= 0 or raw.startswith(b"-")


@pytest.mark.parametrize(
    "comm",
    [
        b"a) R 1 2 3 (b",
        b"((((",
        b"))))",
        b") S 1 1 1 0",
        b"two\nlines",
        b"\x1b[2J\x1b[31mred",
        b"\xff\xfe\xc3",
        b"",
    ],
)
def test_names_that_imitate_the_line_do_not_shift_it(comm: bytes) -> None:
    stat = procfs.parse_stat(stat_line(9, comm, parent=3, faults=(21, 34), threads=4))
    assert (stat.comm, stat.parent_pid, stat.threads) == (comm, 3, 4)
    assert (stat.minor_faults, stat.major_faults) == (21, 34)


def test_times_of_children_that_ended_are_user_and_system_together() -> None:
    assert procfs.parse_stat(stat_line(9, b"x", children=(30, 12))).children_ticks == 42


def test_a_line_cut_anywhere_before_its_last_needed_field_is_refused() -> None:
    line = stat_line(42, b"python3")
    for length in range(len(b" ".join(line.split()[:23]))):
        for parse in (procfs.parse_stat, procfs.parse_thread_stat):
            with pytest.raises(ValueError):
                parse(line[:length])


def test_kernels_without_delay_accounting_fields_still_parse() -> None:
    short = b" ".join(stat_line(42, b"python3", rss_pages=77, block_io=5).split()[:39])
    stat = procfs.parse_stat(short)
    assert (stat.rss_pages, stat.block_io_ticks) == (77, 0)


def test_a_status_line_is_found_by_its_whole_name() -> None:
    raw = b"Name:\tx\nnonvoluntary_ctxt_switches:\t9\nvoluntary_ctxt_switches:\t4\n"
    assert procfs.status_field(raw, b"voluntary_ctxt_switches") == b"4"
    assert procfs.status_field(raw, b"nonvoluntary_ctxt_switches") == b"9"
    assert procfs.status_field(raw, b"VmRSS") is None


@pytest.mark.parametrize(
    ("raw", "count"),
    [(b"0\n", 1), (b"0-3\n", 4), (b"0-3,8,10-11\n", 7), (b"\n", 0), (b"0-767", 768)],
)
def test_number_lists_are_counted(raw: bytes, count: int) -> None:
    assert procfs.parse_number_list(raw) == count


@pytest.mark.parametrize("raw", [b"3-1", b"a-b", b"1-", b"-2"])
def test_what_is_no_number_list_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError):
        procfs.parse_number_list(raw)


def test_arguments_end_at_the_last_nul_and_titles_have_their_padding_removed(
    tmp_path: Path,
) -> None:
    tree = HostTree(tmp_path)
    tree.process(5, argv=(b"python3", b"", b"serve.py"))
    tree.write("proc/6/cmdline", b"VLLM::EngineCore\0\0\0\0\0")
    tree.write("proc/7/cmdline", b"")
    assert procfs.read_argv(tree.captured, 5) == (b"python3", b"", b"serve.py")
    assert procfs.read_argv(tree.captured, 6) == (b"VLLM::EngineCore",)
    assert procfs.read_argv(tree.captured, 7) == ()


def test_only_numbers_in_proc_are_processes(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    for name in ("1", "22", "self", "sys", "٣", "12x"):
        (tmp_path / "proc" / name).mkdir()
    assert sorted(procfs.pids(tree.captured)) == [1, 22]


def test_the_user_is_the_effective_one(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.write("proc/5/status", "Name:\tx\nUid:\t1000\t33\t0\t0\n")
    tree.write("proc/6/status", "Name:\tx\nUid:\tnobody\n")
    assert procfs.read_uid(tree.captured, 5) == 33
    assert procfs.read_uid(tree.captured, 6) is None
