"""Slow facts about the target: sockets, cgroup, container, GPUs, model and data files.

Fills `target` and `target_file`, and tells the disk collector which disks hold the target's files.
It stats files, which may lie on a network file system that hangs: so it has a thread of its own.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, ClassVar

from bottletop.collectors.files import FileCollector
from bottletop.collectors.target_files import Holdings, HoldingsReader, OpenFile
from bottletop.linux import cgroupfs
from bottletop.linux.blockdev import BlockDevices
from bottletop.linux.container import recognise
from bottletop.linux.mounts import read_mounts
from bottletop.linux.sockets import listening, socket_inodes
from bottletop.model import NOT_READ, Absent, ProcessId, State, Table, Value
from bottletop.roots import read_bytes
from bottletop.tables.process import TargetFile, TargetInfo
from bottletop.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bottletop.collectors.base import Context
    from bottletop.model import Row, Sample, Target

MAX_FILES = 64
MAX_SOCKETS = 16
MAX_ENVIRON_BYTES = 256 * 1024
MAX_ASKED_FOR_DEVICES = 16
"""Processes whose environment is asked for CUDA_VISIBLE_DEVICES."""
REMEMBER_DISKS_READS = 6
"""Looks for which a disk is remembered after its last file was seen open: thousands of small files
are open for milliseconds each, and one look in ten seconds meets few of them."""

EARLY_READS = 4
"""After attaching, each of so many reads looks: the target may still be opening its files. Then
every second one does; the tables' rows are good for twenty seconds."""
SOCKETS_EVERY = 6
"""Reads between looks at the socket tables: the kernel walks its whole hash for each, 5 ms of CPU
(measured), and a server opens its listening sockets once."""

_VISIBLE_DEVICES = re.compile(rb"(?:^|\0)CUDA_VISIBLE_DEVICES=([^\0]*)")
_SAFE_LIST = re.compile(rb"[\w,:/ .-]{0,512}\Z")


class TargetCollector(FileCollector):
    """One row for the target, one for each model or data file that it has open or mapped."""

    name: ClassVar[str] = "target"
    tables: ClassVar[tuple[type[Table], ...]] = (TargetInfo, TargetFile)
    period_s: ClassVar[float] = 5.0
    blocking: ClassVar[bool] = True
    of_target: ClassVar[bool] = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._holdings = HoldingsReader(context.roots, BlockDevices(context.roots))
        self._disks: dict[str, int] = {}
        self._root: ProcessId | None = None
        self._reads = 0
        self._listening: list[str] = []

    def read(self) -> Sequence[Sample]:
        """Look through the tree once. Never raises; what is closed to us is absent and said."""
        target = self._context.target()
        exchange = self._context.exchange
        if target is None or target.gone:
            exchange.target_disks, exchange.device_files = NOT_READ, {}
            exchange.listening = NOT_READ
            return ()
        if target.root != self._root:
            self._root, self._disks, self._reads = target.root, {}, 0
        number, self._reads = self._reads, self._reads + 1
        if number >= EARLY_READS and number % 2:
            return ()
        began_ns = self._clock.monotonic_ns()
        found = self._holdings.read(target)
        exchange.target_disks = self._remember_disks(found)
        exchange.device_files = self._device_files(found)
        t_ns = self._clock.monotonic_ns()
        if number in (1, 3) or number % SOCKETS_EVERY == 0:
            self._listening = self._addresses(target, found)
        exchange.listening = tuple(self._listening)
        info = self._info(target, found, t_ns)
        files = [self._file(one, t_ns) for one in _most_telling(found)]
        return (
            self.sample(TargetInfo, began_ns, (info,)),
            self.sample(TargetFile, began_ns, files),
        )

    def _addresses(self, target: Target, found: Holdings) -> list[str]:
        """Where the tree listens or, where it does not, the server of which it is a part."""
        addresses = listening(self._roots, target.root.pid, found.sockets)
        if addresses or target.front is None:
            return addresses
        pid = target.front.pid
        return listening(self._roots, pid, socket_inodes(self._roots, pid))

    # -- for other collectors -----------------------------------------------------------------

    def _remember_disks(self, found: Holdings) -> frozenset[str] | Absent:
        if found.denied and not found.files and not found.device_files:
            return Absent.denied(f"open files are closed to us: sudo bottletop attach {self._pid}")
        fresh = {disk for one in found.files.values() if one.backing for disk in one.backing.disks}
        left = {disk: reads - 1 for disk, reads in self._disks.items() if reads > 1}
        self._disks = left | dict.fromkeys(fresh, REMEMBER_DISKS_READS)
        return frozenset(self._disks)

    def _device_files(self, found: Holdings) -> Mapping[ProcessId, int | Absent]:
        counts: dict[ProcessId, int | Absent] = dict(found.device_files)
        target = self._context.target()
        for member in target.processes if target else ():
            if member.id.pid in found.denied:
                counts[member.id] = Absent.denied(
                    f"it runs as another user: sudo bottletop attach {member.id.pid}"
                )
        return counts

    @property
    def _pid(self) -> int:
        return self._root.pid if self._root else 0

    # -- rows -----------------------------------------------------------------------------------

    def _info(self, target: Target, found: Holdings, t_ns: int) -> Row:
        pid = target.root.pid
        cgroup, container = self._cgroup_and_container(pid)
        return TargetInfo.row(
            target.root.key,
            t_ns,
            {
                TargetInfo.process: target.name,
                TargetInfo.cgroup: cgroup,
                TargetInfo.container: container,
                TargetInfo.gpus: self._gpus(found),
                TargetInfo.visible_devices: self._visible_devices(target, found),
                TargetInfo.sockets: self._sockets(found),
                TargetInfo.probe: self._context.exchange.probe,
                TargetInfo.metrics: self._context.exchange.metrics,
                TargetInfo.stacks: self._context.exchange.stack,
                TargetInfo.notes: "; ".join(self._notes(target, found)),
            },
        )

    def _cgroup_and_container(self, pid: int) -> tuple[Value, Value]:
        try:
            paths = list(cgroupfs.read_paths(self._roots, pid).values())
            mounts = read_mounts(self._roots, pid)
        except OSError as error:
            reason = clean(error.strerror or str(error))
            if isinstance(error, PermissionError):
                return Absent.denied(reason), Absent.denied(reason)
            return Absent.error(reason), Absent.error(reason)
        longest = clean(max(paths, key=len, default=""), 256)
        cgroup: Value = longest or Absent.unsupported("the kernel lists no cgroup")
        container = recognise(paths, mounts)
        return cgroup, container or Absent(State.NOT_APPLICABLE, "no container is recognised")

    def _sockets(self, found: Holdings) -> Value:
        if self._listening:
            return ", ".join(self._listening[:MAX_SOCKETS])
        if found.denied:
            return self._denied("its sockets")
        return Absent(State.NOT_APPLICABLE, "it listens on no socket")

    def _gpus(self, found: Holdings) -> Value:
        """UUIDs of the GPUs whose device files are open, from the driver's own /proc files."""
        if not found.minors:
            if found.denied:
                return self._denied("its device files")
            return Absent(State.NOT_APPLICABLE, "no GPU device file is open")
        uuids = self._uuids_by_minor()
        known = [uuids[minor] for minor in sorted(found.minors) if minor in uuids]
        if known:
            return ", ".join(known)
        names = ", ".join(f"nvidia{minor}" for minor in sorted(found.minors))
        return Absent.unsupported(f"{names} open; the driver does not say which GPUs these are")

    def _uuids_by_minor(self) -> dict[int, str]:
        folder = f"{self._roots.proc}/driver/nvidia/gpus"
        found: dict[int, str] = {}
        try:
            entries = os.listdir(folder)
        except OSError:
            return found
        for entry in entries:
            try:
                raw = read_bytes(f"{folder}/{entry}/information", 4096)
            except OSError:
                continue
            fields = dict(line.partition(b":")[::2] for line in raw.splitlines())
            minor = fields.get(b"Device Minor", b"").strip()
            uuid = clean(fields.get(b"GPU UUID", b""), 64)
            # The driver writes question marks until a GPU has been used once.
            if minor.isdigit() and uuid and "?" not in uuid:
                found[int(minor)] = uuid
        return found

    def _visible_devices(self, target: Target, found: Holdings) -> Value:
        """CUDA_VISIBLE_DEVICES at launch. Nothing else of an environment is kept or looked at."""
        users = [one for one, count in found.device_files.items() if count]
        values: dict[str, None] = {}
        denied = False
        for process in list(dict.fromkeys([target.root, *users]))[:MAX_ASKED_FOR_DEVICES]:
            try:
                raw = read_bytes(f"{self._roots.proc}/{process.pid}/environ", MAX_ENVIRON_BYTES)
            except PermissionError:
                denied = True
                continue
            except OSError:
                continue
            match = _VISIBLE_DEVICES.search(raw)
            if match and _SAFE_LIST.match(match[1]):
                values[clean(match[1], 128) or "none"] = None
        if values:
            return " | ".join(values)
        if denied:
            return self._denied("its environment")
        return Absent(State.NOT_APPLICABLE, "not set at launch")

    def _denied(self, what: str) -> Absent:
        return Absent.denied(f"{what} cannot be read: sudo bottletop attach {self._pid}")

    def _notes(self, target: Target, found: Holdings) -> list[str]:
        notes = [*target.notes]
        others = [pid for pid in found.denied if pid != target.root.pid]
        if others:
            notes.append(
                f"open files of {len(others)} of {len(target.processes)} processes are closed to us"
            )
        if self._context.exchange.thread_note:
            notes.append(self._context.exchange.thread_note)
        return notes

    @staticmethod
    def _file(one: OpenFile, t_ns: int) -> Row:
        unknown = Absent.unsupported("no mount is known above it")
        return TargetFile.row(
            clean(one.path, 256),
            t_ns,
            {
                TargetFile.disk: one.backing.place if one.backing else unknown,
                TargetFile.filesystem: one.backing.filesystem if one.backing else unknown,
                TargetFile.size_bytes: Absent.unsupported("sizes are not captured")
                if one.size_bytes is None
                else one.size_bytes,
                TargetFile.mapped: int(one.mapped),
            },
        )


def _most_telling(found: Holdings) -> list[OpenFile]:
    """Files whose names say what they are first, the largest of each kind first."""
    ranked = sorted(found.files.values(), key=lambda one: (not one.is_data, -(one.size_bytes or 0)))
    return ranked[:MAX_FILES]
