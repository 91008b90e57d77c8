"""Pressure stall totals of the host and of the target's cgroup. Fills `psi`.

Documentation/accounting/psi.rst. Totals in microseconds are read, never the averages: a difference
of totals cannot alias.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, ClassVar

from bottletop.collectors.base import Unavailable
from bottletop.collectors.files import FileCollector
from bottletop.linux import cgroupfs
from bottletop.model import Absent, ProcessId, Row, State, Table, Value
from bottletop.roots import read_record
from bottletop.tables.host import Psi

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.collectors.base import Context
    from bottletop.model import Sample

RESOURCES = ("cpu", "io", "memory")
RELOCATE_EVERY = 10
"""Reads between looks for the target's cgroup: a process can be moved."""

_HOST_CPU_FULL = Absent(State.NOT_APPLICABLE, "the host as a whole is never fully out of CPU")
_NO_FULL_LINE = Absent.unsupported("this kernel writes no full line for it (before 5.13)")


class PsiCollector(FileCollector):
    """Rows for the host, and for the target's cgroup where a v2 hierarchy has it."""

    name: ClassVar[str] = "psi"
    tables: ClassVar[tuple[type[Table], ...]] = (Psi,)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._folder: str | None = None
        self._folder_of: ProcessId | None = None
        self._reads = 0

    def open(self) -> None:
        """Raises `Unavailable` where pressure is not built in or switched off."""
        folder = f"{self._roots.proc}/pressure"
        if not os.path.isdir(folder):
            raise Unavailable("the kernel has no pressure stall information (CONFIG_PSI)")
        try:
            read_record(f"{folder}/cpu")
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                raise Unavailable(
                    "pressure stall information is switched off: boot the host with psi=1"
                ) from None
            raise Unavailable(
                f"/proc/pressure: {error.strerror}", denied=isinstance(error, PermissionError)
            ) from None

    def read(self) -> Sequence[Sample]:
        """Read all totals. Raises `Unavailable` when none can be read."""
        began_ns = self._clock.monotonic_ns()
        rows = []
        for resource in RESOURCES:
            row = self._row("host", resource, f"{self._roots.proc}/pressure/{resource}")
            if row is not None:
                rows.append(row)
        if not rows:
            raise Unavailable("pressure files can no longer be read")
        folder = self._target_folder()
        for resource in RESOURCES if folder else ():
            row = self._row("target", resource, f"{folder}/{resource}.pressure")
            if row is not None:
                rows.append(row)
        return (self.sample(Psi, began_ns, rows),)

    def _row(self, scope: str, resource: str, path: str) -> Row | None:
        try:
            totals = parse_pressure(read_record(path, 512))
        except OSError:
            return None
        if "some" not in totals:
            return None
        full: Value = totals.get("full", _NO_FULL_LINE)
        if scope == "host" and resource == "cpu":
            full = _HOST_CPU_FULL
        values = {Psi.some_us: totals["some"], Psi.full_us: full}
        return Psi.row(f"{scope}/{resource}", self._clock.monotonic_ns(), values)

    def _target_folder(self) -> str | None:
        target = self._context.target()
        if target is None or target.gone:
            self._folder = self._folder_of = None
            return None
        if target.root != self._folder_of or self._reads % RELOCATE_EVERY == 0:
            self._folder_of = target.root
            try:
                found = cgroupfs.locate(self._roots, target.root.pid)
                folder = found.own.get(cgroupfs.UNIFIED, "")
                # The root group of a host has no events file, and its pressure is the host's.
                has_own = os.path.exists(f"{folder}/cgroup.events")
                self._folder = folder if folder and has_own else None
            except (OSError, cgroupfs.NotLocated):
                self._folder = None
        self._reads += 1
        return self._folder


def parse_pressure(raw: bytes) -> dict[str, int]:
    """ "some" and "full" to their totals in microseconds, as far as the file has them."""
    totals: dict[str, int] = {}
    for line in raw.splitlines():
        kind, _, rest = line.partition(b" ")
        _, mark, total = rest.rpartition(b"total=")
        if mark and total.isdigit() and kind in (b"some", b"full"):
            totals[kind.decode("ascii")] = int(total)
    return totals
