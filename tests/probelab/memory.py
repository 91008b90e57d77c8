"""Probe memory written by a test, as true or as hostile as it likes."""

from __future__ import annotations

import contextlib
import mmap
import os
import subprocess
import time
from typing import TYPE_CHECKING

from bottletop.linux import probe_memory as layout
from probelab.program import identify

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bottletop.model import ProcessId

START, UNDER_WAY, NESTED, LONGEST, COUNTS, SUMS = 1, 2, 3, 4, 8, 88


class WrittenMemory:
    """A mapped memfd that begins as a valid, empty probe of a process, created a second ago."""

    def __init__(self, fd: int, process: ProcessId) -> None:
        seen = os.fstat(fd)
        self.identity = (seen.st_dev, seen.st_ino)
        self._map = mmap.mmap(fd, seen.st_size)  # keeps a duplicate of the descriptor
        self.words = memoryview(self._map).cast("Q")
        self._cells: list[memoryview] = []
        self.process = process
        self.created_ns = time.monotonic_ns() - 1_000_000_000
        self.words[0] = layout.MAGIC
        self.words[1] = layout.LAYOUT
        self.words[2] = layout.SIZE_BYTES
        self.words[3] = process.pid
        self.words[4] = process.start_ticks
        self.words[5] = self.created_ns
        self.words[7] = 1
        self.words[11] = layout.MAX_STAGES

    def close(self) -> None:
        for cell in self._cells:
            cell.release()
        self.words.release()
        self._map.close()

    def name(self, stage: int, raw: bytes) -> None:
        """Name a stage."""
        at = layout.NAMES_AT + stage * layout.NAME_BYTES
        self._map[at : at + layout.NAME_BYTES] = raw.ljust(layout.NAME_BYTES, b"\0")

    def cell(self, number: int, stage: int) -> memoryview:
        """Words of a private cell, claimed for a stage."""
        index = layout.MAX_STAGES + number
        self.words[11] = max(self.words[11], index + 1)
        return self._claim(index, stage)

    def shared_cell(self, stage: int) -> memoryview:
        """Words of a stage's shared cell."""
        self.words[12] = 1
        return self._claim(stage, stage)

    def _claim(self, index: int, stage: int) -> memoryview:
        start = layout.HEADER_BYTES // 8 + index * layout.CELL_WORDS
        words = self.words[start : start + layout.CELL_WORDS]
        words[0] = stage + 1
        self._cells.append(words)
        return words

    def passes(self, cell: memoryview, count: int, each_ns: int) -> None:
        """Add completed passes to a cell."""
        bucket = min((each_ns * each_ns).bit_length(), layout.BUCKETS - 1)
        cell[COUNTS + bucket] += count
        cell[SUMS + bucket] += count * each_ns
        cell[LONGEST] = max(cell[LONGEST], each_ns)

    def cut(self, size: int) -> None:
        """Make the memory shorter, as a target without seals may."""
        folder = f"/proc/{self.process.pid}/fd"
        for fd in os.listdir(folder):
            seen = os.stat(f"{folder}/{fd}")
            if (seen.st_dev, seen.st_ino) == self.identity:
                os.truncate(f"{folder}/{fd}", size)
                return
        raise AssertionError("its process holds it no more")


def _memfd(name: str, size: int) -> int:
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    os.ftruncate(fd, size)
    return fd


@contextlib.contextmanager
def written(
    count: int = 1, *, name: str = "bottletop-probe-1", size: int = layout.SIZE_BYTES
) -> Iterator[list[WrittenMemory]]:
    """Memories that another process holds open, so that no probe of the test runner interferes."""
    fds = [_memfd(name, size) for _ in range(count)]
    with subprocess.Popen(["sleep", "600"], pass_fds=fds) as holder:
        memories = [WrittenMemory(fd, identify(holder.pid)) for fd in fds]
        for fd in fds:
            os.close(fd)
        try:
            yield memories
        finally:
            for memory in memories:
                memory.close()
            holder.kill()


@contextlib.contextmanager
def written_here(name: str = "bottletop-probe-1") -> Iterator[WrittenMemory]:
    """A memory that this process comes to hold, at the lowest free descriptors."""
    fd = _memfd(name, layout.SIZE_BYTES)
    memory = WrittenMemory(fd, identify(os.getpid()))
    os.close(fd)
    try:
        yield memory
    finally:
        memory.close()
