"""Files of /proc that describe processes and threads.

Field numbers are those of proc_pid_stat(5). Names are bytes here: a command name may hold spaces,
parentheses, newlines and anything that is not UTF-8; whoever shows it passes it through
`text.clean`.
"""

from __future__ import annotations

import os
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from bottletop.roots import read_bytes, read_record

if TYPE_CHECKING:
    from bottletop.roots import Roots

USER_HZ = 100
"""Ticks a second in files for user space: 100 on every architecture that has GPUs."""

MAX_CMDLINE_BYTES = 16 * 1024
_FIELDS_FROM_STATE = 22
"""Fields 3 to 24 (rss) exist since Linux 2.6; a shorter line is torn."""


_PROCESS_FIELDS = itemgetter(1, 7, 9, 11, 12, 13, 14, 17, 19, 21)
"""Parent, faults, times, children's times, threads, start, rss; 0 is the state, field 3."""
_BLOCK_IO = 39


class ProcStat(NamedTuple):
    """One line of /proc/PID/stat or /proc/PID/task/TID/stat. Times are ticks of `USER_HZ`."""

    pid: int
    comm: bytes
    state: str
    parent_pid: int
    minor_faults: int
    major_faults: int
    user_ticks: int
    system_ticks: int
    children_ticks: int
    """User and system time of children that were waited for."""
    threads: int
    start_ticks: int
    rss_pages: int
    block_io_ticks: int


class ThreadStat(NamedTuple):
    """The part of a thread's stat line that is read every second. Times are ticks of `USER_HZ`."""

    comm: bytes
    state: str
    major_faults: int
    user_ticks: int
    system_ticks: int
    block_io_ticks: int


def parse_stat(raw: bytes) -> ProcStat:
    """Parse a stat line whatever its command name holds. Raises ValueError on anything else."""
    pid, comm, fields = _split_stat(raw)
    parent, minor, major, user, system, child_user, child_system, threads, start, rss = map(
        int, _PROCESS_FIELDS(fields)
    )
    return ProcStat(
        int(pid),
        comm,
        fields[0].decode("ascii"),
        parent,
        minor,
        major,
        user,
        system,
        child_user + child_system,
        threads,
        start,
        rss,
        int(fields[_BLOCK_IO]) if len(fields) > _BLOCK_IO else 0,
    )


def parse_thread_stat(raw: bytes) -> ThreadStat:
    """Parse what changes in a thread's stat line. Raises ValueError as `parse_stat` does."""
    _, comm, fields = _split_stat(raw)
    return ThreadStat(
        comm,
        fields[0].decode("ascii"),
        int(fields[9]),
        int(fields[11]),
        int(fields[12]),
        int(fields[_BLOCK_IO]) if len(fields) > _BLOCK_IO else 0,
    )


def parse_state(raw: bytes) -> str:
    """The state letter of a stat line alone. Raises ValueError."""
    at = raw.rindex(b")") + 2
    if not raw[at:].strip():
        raise ValueError("not a stat line")
    return raw[at : at + 1].decode("ascii")


def _split_stat(raw: bytes) -> tuple[bytes, bytes, list[bytes]]:
    """Pid, command name, and the fields from the state on.

    The name ends at the last closing parenthesis: only numbers and the state letter follow it.
    """
    head, closing, tail = raw.rpartition(b")")
    pid, opening, comm = head.partition(b" (")
    fields = tail.split(None, _BLOCK_IO + 1)
    if not closing or not opening or len(fields) < _FIELDS_FROM_STATE:
        raise ValueError("not a stat line")
    return pid, comm, fields


def pids(roots: Roots) -> list[int]:
    """Every process that /proc lists, in no promised order. Raises OSError."""
    return [int(name) for name in os.listdir(roots.proc) if name.isascii() and name.isdigit()]


def read_stat(roots: Roots, pid: int) -> ProcStat:
    """Read a process's stat line. Raises OSError (gone, hidden) and ValueError (torn)."""
    return parse_stat(read_record(f"{roots.proc}/{pid}/stat"))


def read_argv(roots: Roots, pid: int) -> tuple[bytes, ...]:
    """Arguments of a process, or the title it gave itself; empty for kernel threads and zombies.

    Raises OSError. Bounded: arguments beyond `MAX_CMDLINE_BYTES` are not read.
    """
    raw = read_bytes(f"{roots.proc}/{pid}/cmdline", MAX_CMDLINE_BYTES).rstrip(b"\0 \n")
    return tuple(raw.split(b"\0")) if raw else ()


def status_field(raw: bytes, name: bytes) -> bytes | None:
    """The value of one line of /proc/PID/status, None where the kernel does not write it."""
    at = raw.find(b"\n" + name + b":")
    if at < 0:
        return None
    begin = at + len(name) + 2
    end = raw.find(b"\n", begin)
    return raw[begin : end if end >= 0 else len(raw)].strip()


def read_uid(roots: Roots, pid: int) -> int | None:
    """Effective uid from /proc/PID/status, None where it cannot be told. Raises OSError.

    The owner of /proc/PID is no substitute: it is root for every process that is not dumpable.
    """
    fields = (status_field(read_record(f"{roots.proc}/{pid}/status"), b"Uid") or b"").split()
    return int(fields[1]) if len(fields) == 4 and fields[1].isdigit() else None


def read_uptime_s(roots: Roots) -> float | None:
    """Seconds since boot, None where /proc/uptime cannot be read."""
    try:
        return float(read_record(f"{roots.proc}/uptime").split()[0])
    except (OSError, ValueError, IndexError):
        return None


def parse_number_list(raw: bytes) -> int:
    """How many numbers a kernel list such as "0-3,8" names. Raises ValueError."""
    count = 0
    for part in raw.strip().split(b","):
        if not part:
            continue
        low, dash, high = part.partition(b"-")
        size = int(high) - int(low) + 1 if dash else 1 if int(low) >= 0 else 0
        if size < 1:
            raise ValueError("not a list of numbers")
        count += size
    return count


def parse_numbers(raw: bytes) -> dict[bytes, int]:
    """Name to number of files with one of each a line, with or without colon and unit."""
    numbers: dict[bytes, int] = {}
    for line in raw.splitlines():
        fields = line.split(None, 2)
        if len(fields) >= 2 and fields[1].isdigit():
            numbers[fields[0].rstrip(b":")] = int(fields[1])
    return numbers
