"""Which processes a person may mean: by pid, by name, or all of them for the picker."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bottletop.attach.errors import NoSuchProcess, NotPermitted
from bottletop.attach.tree import argv_of, user_name
from bottletop.linux import procfs
from bottletop.linux.command import Command, describe
from bottletop.model import ProcessId
from bottletop.roots import read_record
from bottletop.text import clean

if TYPE_CHECKING:
    from bottletop.linux.procfs import ProcStat
    from bottletop.roots import Roots

MAX_CANDIDATES = 4096
_KTHREADD = 2


@dataclass(frozen=True, slots=True)
class Candidate:
    """A process as a list or the picker shows it. All texts are clean and free of secrets."""

    id: ProcessId
    parent_pid: int
    name: str
    command: str
    """Program and the flags that are safe to show."""
    user: str
    cpu_s: float
    """CPU time used so far, children that ended not included."""
    age_s: float | None
    """None where the host's uptime cannot be read."""
    threads: int

    @property
    def pid(self) -> int:
        return self.id.pid


def identify(roots: Roots, pid: int) -> ProcessId:
    """Pin a pid down to the process that has it now; a thread id leads to its process.

    Raises `NoSuchProcess` and `NotPermitted`.
    """
    if roots.live and pid == os.getpid():
        raise NoSuchProcess(f"pid {pid} is bottletop itself")
    try:
        stat = procfs.read_stat(roots, pid)
    except (FileNotFoundError, ProcessLookupError):
        raise _absent(roots, pid) from None
    except PermissionError:
        raise NotPermitted(
            f"pid {pid} is hidden from this user (/proc is mounted hidepid): "
            f"sudo bottletop attach {pid}"
        ) from None
    except (OSError, ValueError) as error:
        raise NoSuchProcess(f"pid {pid} cannot be read: {clean(str(error), 120)}") from None
    if stat.state in "ZXx" and stat.threads <= 1:
        raise NoSuchProcess(f"pid {pid} has ended and only waits for its parent to notice (zombie)")
    if _KTHREADD in (pid, stat.parent_pid) and not argv_of(roots, pid):
        raise NoSuchProcess(f"pid {pid} is a kernel thread ({clean(stat.comm, 64)})")
    leader = _leader(roots, pid)
    if leader != pid:
        return identify(roots, leader)
    return ProcessId(pid, stat.start_ticks)


def identify_child(roots: Roots, pid: int) -> ProcessId:
    """Pin down a child of our own that was not waited for: it may have ended already.

    Raises `NoSuchProcess`.
    """
    try:
        return ProcessId(pid, procfs.read_stat(roots, pid).start_ticks)
    except (OSError, ValueError) as error:
        raise NoSuchProcess(f"pid {pid} cannot be read: {clean(str(error), 120)}") from None


def resolve(roots: Roots, query: str) -> list[Candidate]:
    """Find what a person means by a pid or a name, best first; empty when no name matches.

    A name is held against the command name, the program, the script or module behind an
    interpreter, and the title. Exact matches hide looser ones, and of matches within one tree only
    the topmost is kept, since attaching follows children. Never matches bottletop itself.
    Raises `NoSuchProcess` and `NotPermitted` for a pid.
    """
    query = query.strip()
    if query.isascii() and query.isdigit():
        process = identify(roots, int(query[:20]))
        return [item for item in list_processes(roots) if item.id == process] or [
            _candidate(roots, process)
        ]
    if not query:
        return []
    ranked: dict[int, list[Candidate]] = {}
    parents: dict[int, int] = {}
    for stat, command, candidate in _scan(roots):
        parents[stat.pid] = stat.parent_pid
        rank = _rank(query, stat, command)
        if rank is not None:
            ranked.setdefault(rank, []).append(candidate)
    if not ranked:
        return []
    best = ranked[min(ranked)]
    chosen = {item.pid for item in best}
    top = [item for item in best if not _has_ancestor_in(item.pid, parents, chosen)]
    return sorted(top, key=_busiest_first)


def successor(roots: Roots, query: str, ended: ProcessId) -> ProcessId | None:
    """The youngest process that `query` names and that began after `ended`; None while there is
    none. For following a service that is restarted."""
    named = [one.id for one in resolve(roots, query) if one.id != ended]
    younger = [one for one in named if one.start_ticks >= ended.start_ticks]
    return max(younger, key=lambda one: one.start_ticks, default=None)


def list_processes(roots: Roots) -> list[Candidate]:
    """Every process one could attach to, busiest first: no kernel threads, zombies or ourselves.

    One pass over /proc, about 60 us a process; for a picker, not for every second.
    """
    found = [candidate for _, _, candidate in _scan(roots)]
    return sorted(found, key=_busiest_first)[:MAX_CANDIDATES]


def _scan(roots: Roots) -> list[tuple[ProcStat, Command, Candidate]]:
    uptime_s = procfs.read_uptime_s(roots)
    own = os.getpid() if roots.live else 0
    users: dict[int | None, str] = {}
    found = []
    try:
        present = procfs.pids(roots)
    except OSError:
        return []
    for pid in present:
        if pid == own:
            continue
        try:
            stat = procfs.read_stat(roots, pid)
            argv = procfs.read_argv(roots, pid)
            uid = procfs.read_uid(roots, pid)
        except (OSError, ValueError):
            continue
        if stat.state in "ZXx" or (not argv and _KTHREADD in (pid, stat.parent_pid)):
            continue
        if uid not in users:
            users[uid] = user_name(roots, pid)
        command = describe(argv, stat.comm)
        found.append((stat, command, _make(stat, command, users[uid], uptime_s)))
    return found


def _make(stat: ProcStat, command: Command, user: str, uptime_s: float | None) -> Candidate:
    age_s = None if uptime_s is None else max(0.0, uptime_s - stat.start_ticks / procfs.USER_HZ)
    return Candidate(
        id=ProcessId(stat.pid, stat.start_ticks),
        parent_pid=stat.parent_pid,
        name=command.name,
        command=command.shown,
        user=user,
        cpu_s=(stat.user_ticks + stat.system_ticks) / procfs.USER_HZ,
        age_s=age_s,
        threads=stat.threads,
    )


def _candidate(roots: Roots, process: ProcessId) -> Candidate:
    try:
        stat = procfs.read_stat(roots, process.pid)
    except (OSError, ValueError):
        raise NoSuchProcess(f"pid {process.pid} has just ended") from None
    command = describe(argv_of(roots, process.pid), stat.comm)
    return _make(stat, command, user_name(roots, process.pid), procfs.read_uptime_s(roots))


def _rank(query: str, stat: ProcStat, command: Command) -> int | None:
    """0 the name itself, 1 in another case or without its suffix, 2 a part of it."""
    names = [clean(stat.comm, 64), command.program, command.script, command.title]
    names = [name for name in names if name]
    if query in names:
        return 0
    folded = query.casefold()
    lowered = [name.casefold() for name in names]
    if folded in lowered or any(name.rpartition(".")[0] == folded for name in lowered):
        return 1
    if any(folded in name for name in lowered):
        return 2
    return None


def _has_ancestor_in(pid: int, parents: dict[int, int], chosen: set[int]) -> bool:
    seen = {pid}
    while (pid := parents.get(pid, 0)) and pid not in seen:
        if pid in chosen:
            return True
        seen.add(pid)
    return False


def _busiest_first(item: Candidate) -> tuple[float, int]:
    return (-item.cpu_s, item.pid)


def _absent(roots: Roots, pid: int) -> NoSuchProcess | NotPermitted:
    """Tell "no such pid" from "hidden from us": with hidepid=2 /proc lists only our own."""
    if roots.live and pid > 0:
        try:
            os.getpgid(pid)
        except (ProcessLookupError, OverflowError):
            return NoSuchProcess(f"no process {pid}")
        except PermissionError:
            pass
        return NotPermitted(
            f"pid {pid} exists but is hidden from this user (/proc is mounted hidepid): "
            f"sudo bottletop attach {pid}"
        )
    return NoSuchProcess(f"no process {pid}" + ("" if roots.live else " in the captured tree"))


def _leader(roots: Roots, pid: int) -> int:
    """Process that a thread id belongs to: /proc/TID can be opened, though it is not listed."""
    try:
        raw = read_record(f"{roots.proc}/{pid}/status")
    except OSError:
        return pid
    tgid = procfs.status_field(raw, b"Tgid") or b""
    return int(tgid) if tgid.isdigit() else pid
