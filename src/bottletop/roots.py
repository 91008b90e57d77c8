"""Where the kernel's files are read from: the live host, a captured tree, or a test's fixtures."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

MAX_READ_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Roots:
    """Paths of /proc, /sys, /dev, the cgroup mount and /run; a captured tree is not `live`."""

    proc: str = "/proc"
    sys: str = "/sys"
    dev: str = "/dev"
    cgroup: str = "/sys/fs/cgroup"
    run: str = "/run"
    live: bool = True

    @classmethod
    def under(cls, root: str | Path) -> Roots:
        """The same layout under a captured host tree (`--root DIR`)."""
        base = Path(root)
        return cls(
            proc=str(base / "proc"),
            sys=str(base / "sys"),
            dev=str(base / "dev"),
            cgroup=str(base / "sys/fs/cgroup"),
            run=str(base / "run"),
            live=False,
        )

    @classmethod
    def of(cls, root: str | Path | None) -> Roots:
        """This host, or the captured one under `root` where that is given."""
        return cls.under(root) if root else cls()


def read_bytes(path: str, limit: int = MAX_READ_BYTES) -> bytes:
    """Read a small kernel file whole, at most `limit` bytes. Raises OSError as open and read do.

    Bare system calls: half the cost of a buffered open, and these files are read every second.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        chunks: list[bytes] = []
        left = limit
        while left > 0:
            chunk = os.read(fd, min(left, 65536))
            if not chunk:
                break
            chunks.append(chunk)
            left -= len(chunk)
    finally:
        os.close(fd)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def read_record(path: str, size: int = 4096) -> bytes:
    """Read a file that the kernel writes as one record with a single read. Raises OSError.

    For /proc/PID/stat and its like; a table such as /proc/diskstats needs `read_bytes`.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return os.read(fd, size)
    finally:
        os.close(fd)
