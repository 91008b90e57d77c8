"""Mounts, and the disk or network file system behind a path.

The path of a file says little of where its bytes are: containers put an overlay over it, bind
mounts move it, volumes hide it behind device-mapper. /proc/PID/mountinfo and the mount id of an
open file (/proc/PID/fdinfo/N) lead to the truth; proc_pid_mountinfo(5), overlayfs documentation.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from bottletop.roots import read_bytes
from bottletop.text import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.linux.blockdev import BlockDevices
    from bottletop.roots import Roots

MAX_OVERLAYS = 4
"""Overlays on overlays that are followed."""

_ESCAPE = re.compile(rb"\\([0-7]{3})")
_USER_INFO = re.compile(r"[^/@\s]+@(?=[^/\s])")
_IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})


class Mount(NamedTuple):
    """One line of mountinfo."""

    id: int
    device: str
    """"major:minor"; major 0 for file systems without a block device of their own."""
    root: bytes
    """Folder of the file system that is mounted here; not "/" for bind mounts."""
    point: bytes
    filesystem: str
    source: bytes
    options: bytes
    """Options of the file system itself (overlay folders are here)."""


class Backing(NamedTuple):
    """Where the bytes of a file are."""

    filesystem: str
    place: str
    """Disk names, a network file system with its source, "memory", or why it cannot be told."""
    disks: tuple[str, ...]
    """Keys of the `disk` table: the device that is mounted and all it stands on."""


def parse_mountinfo(raw: bytes) -> list[Mount]:
    """Parse mountinfo; lines that are not whole are left out."""
    mounts = []
    for line in raw.splitlines():
        head, dash, tail = line.partition(b" - ")
        fields, after = head.split(b" "), tail.split(b" ")
        if not dash or len(fields) < 6 or len(after) < 2 or not fields[0].isdigit():
            continue
        mounts.append(
            Mount(
                id=int(fields[0]),
                device=fields[2].decode("ascii", "replace"),
                root=_unescape(fields[3]),
                point=_unescape(fields[4]),
                filesystem=clean(after[0], 32),
                source=_unescape(after[1]),
                options=after[2] if len(after) > 2 else b"",
            )
        )
    return mounts


def read_mounts(roots: Roots, pid: int | str) -> list[Mount]:
    """Mounts as a process sees them. Raises OSError."""
    return parse_mountinfo(read_bytes(f"{roots.proc}/{pid}/mountinfo"))


def mount_of(path: bytes, mounts: Sequence[Mount]) -> Mount | None:
    """The mount that `path` lies on: the longest mount point above it, the newest of equals."""
    best: Mount | None = None
    for mount in mounts:
        point = mount.point.rstrip(b"/")
        if path != point and not path.startswith(point + b"/"):
            continue
        if best is None or len(point) >= len(best.point.rstrip(b"/")):
            best = mount
    return best


def backing_of(
    mount: Mount, host: Sequence[Mount], devices: BlockDevices, depth: int = 0
) -> Backing:
    """Follow one mount to its disk. `host` are the mounts in which overlay folders are looked up.

    Never raises; where it cannot be told, `place` says why and `disks` is empty.
    """
    kind = mount.filesystem
    source = _USER_INFO.sub("", clean(mount.source, 96))
    if kind in _IN_MEMORY:
        return Backing(kind, "memory", ())
    if kind == "overlay":
        return _under_overlay(mount, host, devices, depth)
    name = devices.by_number(mount.device) or devices.by_source(
        mount.source.decode("utf-8", "replace")
    )
    if name is not None:
        return Backing(kind, ", ".join(devices.hardware(name)), devices.with_parts(name))
    # NFS, FUSE, 9p, ZFS: no block device of their own, so the source is the best name there is.
    return Backing(kind, f"{kind} {source}".strip(), ())


def _under_overlay(
    mount: Mount, host: Sequence[Mount], devices: BlockDevices, depth: int
) -> Backing:
    """The upper folder's disk, else that of the first lower one: container stores are on one."""
    options = dict(
        option.partition(b"=")[::2] for option in mount.options.split(b",") if b"=" in option
    )
    lower = options.get(b"lowerdir", b"").split(b":")[0]
    for folder in (options.get(b"upperdir", b""), lower):
        path = _unescape(folder)
        below = mount_of(path, host) if path.startswith(b"/") else None
        if below is None or below.id == mount.id or depth >= MAX_OVERLAYS:
            continue
        if below.filesystem == "overlay" and below.options == mount.options:
            continue
        found = backing_of(below, host, devices, depth + 1)
        return Backing("overlay", found.place, found.disks)
    return Backing("overlay", "overlay; its disk is not visible from here", ())


def _unescape(raw: bytes) -> bytes:
    """Undo the kernel's octal escapes of space, tab, newline and backslash."""
    if b"\\" not in raw:
        return raw
    return _ESCAPE.sub(lambda match: bytes((int(match[1], 8) & 0xFF,)), raw)
