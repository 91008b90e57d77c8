"""Real reads from a real disk, past the page cache: for the program that waits for storage."""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import time
from typing import NamedTuple

FILE_BYTES = 128 * 1024**2
BLOCK_BYTES = 4 * 1024**2
MOST_BATCH_BYTES = 4 * 1024**3
TRIAL_S = 0.5
SPARE_BYTES = 1024**3
"""Free space that has to be left after the file is written."""
MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})


class CannotStarve(Exception):
    """Reads from here would not make anything wait; the message says why."""


class Speed(NamedTuple):
    """What reading in blocks gave: bytes a second, and the share of that time spent on CPU."""

    bytes_per_s: float
    cpu_share: float


class DataFile:
    """A file of real data that is read in large blocks with O_DIRECT, round and round."""

    def __init__(self, workspace: str) -> None:
        """Write the file into `workspace`. Raises `CannotStarve`."""
        kind = file_system_of(workspace)
        folder = os.path.dirname(os.path.abspath(workspace))
        if kind in MEMORY_FILE_SYSTEMS:
            raise CannotStarve(f"{folder} is on {kind}, which is memory: run from a disk's folder")
        self.path = os.path.join(workspace, "samples.bin")
        self._fd = -1
        self._at = 0
        self._buffer = mmap.mmap(-1, BLOCK_BYTES)
        try:
            free = shutil.disk_usage(workspace).free
            if free < FILE_BYTES + SPARE_BYTES:
                raise CannotStarve(f"{folder} has only {free >> 20} MiB free")
            _write(self.path)
            self._fd = os.open(self.path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
            os.preadv(self._fd, [self._buffer], 0)
        except OSError as error:
            self.close()
            raise CannotStarve(
                f"no direct reads from {folder} ({kind}): {error.strerror or error}"
            ) from error

    def read(self, size_bytes: int) -> None:
        """Read `size_bytes`, in whole blocks. Raises OSError."""
        done = 0
        while done < size_bytes:
            got = os.preadv(self._fd, [self._buffer], self._at)
            if got == 0:
                raise OSError(f"{self.path} was cut short")
            done += got
            self._at = (self._at + BLOCK_BYTES) % FILE_BYTES

    def measure(self, trial_s: float = TRIAL_S) -> Speed:
        """Read for `trial_s` and say how fast that was and how much of it was CPU."""
        began, cpu_began, size = time.monotonic(), time.thread_time(), 0
        while time.monotonic() - began < trial_s:
            self.read(BLOCK_BYTES)
            size += BLOCK_BYTES
        took_s = time.monotonic() - began
        return Speed(size / took_s, (time.thread_time() - cpu_began) / took_s)

    def close(self) -> None:
        """Remove the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        with contextlib.suppress(OSError):
            os.unlink(self.path)


def batch_bytes(speed: Speed, read_s: float) -> int:
    """Bytes that take about `read_s` to read. Raises `CannotStarve` where nothing would wait."""
    if speed.cpu_share > 0.5:
        raise CannotStarve(
            f"reads here cost {speed.cpu_share:.0%} of a core: they come from memory, not a disk"
        )
    size = round(speed.bytes_per_s * read_s / BLOCK_BYTES) * BLOCK_BYTES
    if size > MOST_BATCH_BYTES:
        raise CannotStarve(
            f"reads here give {speed.bytes_per_s / 1e9:.0f} GB/s: too fast to starve anything"
        )
    return max(BLOCK_BYTES, size)


def file_system_of(folder: str, mountinfo: str = "/proc/self/mountinfo") -> str:
    """Type of the file system that holds `folder`, "unknown" where the kernel does not say."""
    device = os.stat(folder).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with contextlib.suppress(OSError), open(mountinfo, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            left, _, right = line.partition(" - ")
            fields = left.split()
            if len(fields) > 2 and fields[2] == wanted and right:
                return right.split()[0]
    return "unknown"


def _write(path: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        for _ in range(FILE_BYTES // BLOCK_BYTES):
            block = memoryview(os.urandom(BLOCK_BYTES))
            while block:
                block = block[os.write(fd, block) :]
        os.fsync(fd)
    finally:
        os.close(fd)
