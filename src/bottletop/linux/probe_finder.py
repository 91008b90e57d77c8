"""Finds stage probes among the open descriptors of processes, a little at a time.

Looking behind a descriptor costs about 5 us, and inference servers hold thousands. So descriptors
that are new are looked at first, within `LIST_EVERY_S`; the others are gone over again in turn, a
few a call, since a closed descriptor's number is given out again.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from bottletop.linux.probe_memory import fd_identity, fd_names, probe_at
from bottletop.model import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Collection

    from bottletop.linux.probe_memory import ProbeMemory
    from bottletop.model import ProcessId
    from bottletop.roots import Roots

LIST_EVERY_S = 2.0
DENIED_EVERY_S = 10.0
LOOKS_AT_NEW = 1000
LOOKS_AGAIN = 64


class ProbeFinder:
    """Looks for probes of a changing set of processes. Opens each one once; the caller closes."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._due_ns: dict[ProcessId, int] = {}
        self._seen: dict[ProcessId, set[str]] = {}
        self._known: dict[tuple[ProcessId, str], tuple[int, int]] = {}
        self._new: deque[tuple[ProcessId, str]] = deque()
        self._again: deque[tuple[ProcessId, str]] = deque()
        self.denied: set[ProcessId] = set()
        """Processes whose descriptors we may not see: they run as another user."""

    def look(
        self, processes: Collection[ProcessId], now_ns: int
    ) -> list[tuple[ProcessId, ProbeMemory]]:
        """New probes behind the descriptors looked at in this call.

        One that has two descriptors, or whose process left and came back, comes again.
        """
        watched = set(processes)
        for process in [process for process in self._due_ns if process not in watched]:
            self._forget(process)
        for process in processes:
            if now_ns >= self._due_ns.get(process, now_ns):
                self._list(process, now_ns)
        if not self._again:
            self._again.extend((one, name) for one, names in self._seen.items() for name in names)
        found = []
        for queue, at_most in ((self._new, LOOKS_AT_NEW), (self._again, LOOKS_AGAIN)):
            for _ in range(min(at_most, len(queue))):
                process, name = queue.popleft()
                if process not in watched or self._is_known(process, name):
                    continue
                probe = probe_at(self._roots, process, name)
                if probe is not None:
                    self._known[process, name] = probe.identity
                    found.append((process, probe))
        return found

    def _is_known(self, process: ProcessId, name: str) -> bool:
        """True for the descriptor of a probe that was handed out, while it is still that one's."""
        known = self._known.get((process, name))
        if known is None:
            return False
        try:
            return fd_identity(self._roots, process.pid, name) == known
        except OSError:
            return False

    def _list(self, process: ProcessId, now_ns: int) -> None:
        every_s = LIST_EVERY_S
        try:
            names = set(fd_names(self._roots, process.pid))
            self.denied.discard(process)
        except PermissionError:
            self.denied.add(process)
            names, every_s = set(), DENIED_EVERY_S
        except OSError:
            names = set()
        self._new.extend((process, name) for name in names - self._seen.get(process, set()))
        self._seen[process] = names
        self._due_ns[process] = now_ns + round(every_s * NS_PER_S)

    def _forget(self, process: ProcessId) -> None:
        del self._due_ns[process]
        for name in self._seen.pop(process, ()):
            self._known.pop((process, name), None)
        self.denied.discard(process)
