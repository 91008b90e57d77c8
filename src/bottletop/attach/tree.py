"""From one process to the tree that is the target: children, roles, and what cannot be seen."""

from __future__ import annotations

import os
import pwd
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from bottletop.attach.roles import Identity, identify_role
from bottletop.linux import procfs
from bottletop.model import ProcessId, Target, TargetProcess
from bottletop.text import clean

if TYPE_CHECKING:
    from bottletop.linux.procfs import ProcStat
    from bottletop.roots import Roots

MAX_PROCESSES = 512
"""Most processes of one tree that are followed; more are counted in the notes."""
SWEEP_EVERY = 16
"""Passes between full readings of /proc. In between only new pids and members are read: a reused
pid is noticed among members at once, among strangers at the next sweep."""

FRONTS = frozenset({"api-server", "server", "gateway"})
PARTS = frozenset({"engine", "worker", "coordinator", "detokenizer", "forkserver"})
"""Roles of processes that have a server above them."""
MAX_STEPS_UP = 4
YOUNG_PASSES = 3
"""Passes in which a new process is described afresh: it may still exec or take its title."""


def find_target(roots: Roots, root: ProcessId) -> Target:
    """Resolve a process tree once. `gone` is set when the root ended or its pid was reused.

    Something that asks every second keeps a `TargetFinder`: it costs a tenth of this.
    """
    return TargetFinder()(roots, root)


class _Member(NamedTuple):
    identity: Identity
    comm: bytes
    passes: int


class TargetFinder:
    """Resolves the same tree again and again, remembering what it has seen of /proc.

    A process that was once in the tree stays in it when its parent ends and it is handed to init:
    servers double-fork, and an engine that outlives its API server is what one wants to see.
    """

    def __init__(self) -> None:
        self._following: tuple[Roots, ProcessId] | None = None
        self._parents: dict[int, tuple[int, int]] = {}
        """pid to (parent pid, start ticks) of every process of the host."""
        self._members: dict[ProcessId, _Member] = {}
        self._name = ""
        self._notes: list[str] = []
        self._front: ProcessId | None = None
        self._pass = 0
        self._own_pid = 0

    def __call__(self, roots: Roots, root: ProcessId) -> Target:
        """The tree as it is now. Never raises: what cannot be read is absent or in the notes."""
        if self._following != (roots, root):
            self._following = (roots, root)
            self._parents, self._members = {}, {}
            self._name, self._pass, self._front = "", 0, None
            # We may run under a shell or a notebook that is being watched.
            self._own_pid = os.getpid() if roots.live else 0
        sweep = self._pass % SWEEP_EVERY == 0
        self._pass += 1
        self._look(roots, sweep)
        stats = self._living(roots, root)
        if root.pid not in stats:
            return self._gone(roots, root, stats)
        processes = self._describe(roots, root, stats, sweep)
        if sweep:
            closed = access_note(roots, root.pid)
            self._notes = [note for note in (closed, self._look_up(roots, root)) if note]
        notes = [*self._notes]
        if len(stats) > MAX_PROCESSES:
            notes.append(f"{len(stats)} processes in the tree; the first {MAX_PROCESSES} are read")
        self._name = processes[0].name
        return Target(root, self._name, tuple(processes), notes=tuple(notes), front=self._front)

    def _look(self, roots: Roots, sweep: bool) -> None:
        """Bring `_parents` up to date."""
        try:
            present = procfs.pids(roots)
        except OSError:
            present = []
        known = {} if sweep else self._parents
        fresh: dict[int, tuple[int, int]] = {}
        for pid in present:
            entry = known.get(pid)
            if entry is None:
                stat = _stat(roots, pid)
                if stat is None:
                    continue
                entry = (stat.parent_pid, stat.start_ticks)
            fresh[pid] = entry
        self._parents = fresh

    def _living(self, roots: Roots, root: ProcessId) -> dict[int, ProcStat]:
        """Members in breadth-first order, each read anew, so that no reused pid gets in."""
        children: dict[int, list[int]] = {}
        for pid, (parent, _) in self._parents.items():
            children.setdefault(parent, []).append(pid)
        orphans = [process.pid for process in self._members if process != root]
        living: dict[int, ProcStat] = {}
        queue = deque([root.pid, *orphans])
        while queue:
            pid = queue.popleft()
            stat = None if pid in living else _stat(roots, pid)
            if stat is None or not self._belongs(stat, root, living):
                continue
            living[pid] = stat
            self._parents[pid] = (stat.parent_pid, stat.start_ticks)
            queue.extend(sorted(children.get(pid, ())))
        return dict(sorted(living.items(), key=lambda item: _depth(item[0], root.pid, living)))

    def _belongs(self, stat: ProcStat, root: ProcessId, living: dict[int, ProcStat]) -> bool:
        process = ProcessId(stat.pid, stat.start_ticks)
        if stat.pid == root.pid:
            return process == root and not _ended(stat)
        if stat.pid == self._own_pid:
            return False
        return process in self._members or stat.parent_pid in living

    def _describe(
        self, roots: Roots, root: ProcessId, stats: dict[int, ProcStat], sweep: bool
    ) -> list[TargetProcess]:
        members: dict[ProcessId, _Member] = {}
        found: list[TargetProcess] = []
        for pid, stat in list(stats.items())[:MAX_PROCESSES]:
            process = ProcessId(pid, stat.start_ticks)
            member = self._members.get(process)
            if member is None or sweep or member.comm != stat.comm or member.passes < YOUNG_PASSES:
                above = stats.get(stat.parent_pid) if pid != root.pid else None
                parent = members.get(ProcessId(above.pid, above.start_ticks)) if above else None
                if parent is None and pid != root.pid:
                    parent = members.get(root)
                identity = identify_role(
                    argv_of(roots, pid), stat.comm, parent.identity if parent else None
                )
                member = _Member(identity, stat.comm, member.passes + 1 if member else 1)
            members[process] = member
            identity = member.identity
            found.append(
                TargetProcess(process, stat.parent_pid, identity.command.name, identity.role)
            )
        self._members = members
        return found

    def _gone(self, roots: Roots, root: ProcessId, stats: dict[int, ProcStat]) -> Target:
        if not self._name:
            # It ended before the first look; until it is waited for the kernel keeps its name.
            stat = _stat(roots, root.pid)
            if stat is not None and stat.start_ticks == root.start_ticks:
                self._name = clean(stat.comm, 64)
        left = [str(pid) for pid in stats if pid != root.pid]
        notes: tuple[str, ...] = ()
        if left:
            notes = (f"started by it and still running: pid {', '.join(left[:8])}",)
        return Target(root, self._name, (), gone=True, notes=notes)

    def _look_up(self, roots: Roots, root: ProcessId) -> str:
        """Find the server of which the process is one part, above it; says so, else empty.

        An engine's worker stands under the engine, that under the API server, which listens.
        """
        self._front = None
        note = ""
        pid = root.pid
        for _ in range(MAX_STEPS_UP):
            pid = self._parents.get(pid, (0, 0))[0]
            stat = _stat(roots, pid) if pid > 1 else None
            if stat is None:
                break
            above = identify_role(argv_of(roots, pid), stat.comm, None)
            if above.role in FRONTS:
                self._front = ProcessId(pid, stat.start_ticks)
                note = (
                    f"part of {above.command.name} ({above.role}); "
                    f"the whole server: bottletop attach {pid}"
                )
            elif above.role not in PARTS:
                break
        return note


def access_note(roots: Roots, pid: int) -> str:
    """What of a process is closed to us, with the command that opens it; empty when nothing is.

    The kernel asks for PTRACE_MODE_READ: same user and dumpable, or CAP_SYS_PTRACE (proc(5)).
    """
    try:
        os.listdir(f"{roots.proc}/{pid}/fd")
    except PermissionError:
        who = user_name(roots, pid)
        return (
            f"open files, sockets and I/O of pid {pid} are closed to us (it runs as {who}); "
            f"see them with: sudo bottletop attach {pid}"
        )
    except OSError:
        return ""
    return ""


def user_name(roots: Roots, pid: int) -> str:
    """User that a process runs as; the bare uid where no name is known or the host is captured."""
    try:
        uid = procfs.read_uid(roots, pid)
    except OSError:
        uid = None
    if uid is None:
        return "an unknown user"
    if not roots.live:
        return f"uid {uid}"
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _stat(roots: Roots, pid: int) -> ProcStat | None:
    """None for a process that vanished, hides, or whose line is torn: all normal in a pass."""
    try:
        return procfs.read_stat(roots, pid)
    except (OSError, ValueError):
        return None


def argv_of(roots: Roots, pid: int) -> tuple[bytes, ...]:
    """Arguments of a process, none where it vanished or hides."""
    try:
        return procfs.read_argv(roots, pid)
    except OSError:
        return ()


def _depth(pid: int, root: int, living: dict[int, ProcStat]) -> int:
    """Steps up to the root; what was handed to init counts as deepest and so comes last."""
    depth = 0
    while pid != root and pid in living and depth < len(living):
        pid, depth = living[pid].parent_pid, depth + 1
    return depth if pid == root else len(living)


def _ended(stat: ProcStat) -> bool:
    """A zombie without living threads; with them only its main thread has ended."""
    return stat.state in "ZXx" and stat.threads <= 1
