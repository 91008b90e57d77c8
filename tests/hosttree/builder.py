"""Writes the files of a made-up host under a folder, in the kernel's own formats."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from bottletop.model import ProcessId, Target, TargetProcess
from bottletop.roots import Roots

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class HostTree:
    """A host made of files. Calls write at once and may be repeated to let time pass."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("proc", "sys/fs/cgroup", "dev", "run"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    @property
    def captured(self) -> Roots:
        """The tree as `--root` reads it."""
        return Roots.under(self.folder)

    @property
    def live(self) -> Roots:
        """The same files, read as those of a running host: they may move."""
        captured = self.captured
        return Roots(
            captured.proc, captured.sys, captured.dev, captured.cgroup, captured.run, live=True
        )

    def write(self, path: str, content: str | bytes) -> Path:
        """Write one file in place, so that descriptors kept open on it see the new content."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def link(self, path: str, target: str | bytes | Path) -> None:
        """Make a symbolic link, dangling or not."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        os.symlink(os.fsencode(target), os.fsencode(file))

    def remove(self, path: str) -> None:
        """Remove a file or a folder with all in it."""
        file = self.folder / path
        if file.is_dir() and not file.is_symlink():
            for child in file.iterdir():
                self.remove(f"{path}/{child.name}")
            file.rmdir()
        else:
            file.unlink()

    # -- processes ------------------------------------------------------------------------------

    def process(
        self,
        pid: int,
        *,
        parent: int = 1,
        comm: bytes = b"python3",
        argv: Sequence[bytes] = (b"python3", b"serve.py"),
        start: int | None = None,
        state: str = "S",
        user: int = 0,
        system: int = 0,
        children: tuple[int, int] = (0, 0),
        faults: tuple[int, int] = (0, 0),
        rss_pages: int = 1000,
        uid: int = 0,
        threads: Sequence[int] = (),
        io: Mapping[str, int] | None = None,
    ) -> ProcessId:
        """Write one process; `threads` are tids besides its own. `faults` are minor and major."""
        tids = [pid, *threads]
        process = ProcessId(pid, pid * 10 if start is None else start)
        line = stat_line(
            pid,
            comm,
            state=state,
            parent=parent,
            start=process.start_ticks,
            user=user,
            system=system,
            children=children,
            faults=faults,
            rss_pages=rss_pages,
            threads=len(tids),
        )
        self.write(f"proc/{pid}/stat", line)
        self.write(f"proc/{pid}/status", status_text(pid, comm, uid, rss_pages))
        self.write(f"proc/{pid}/cmdline", b"".join(part + b"\0" for part in argv))
        if io is not None:
            self.write(f"proc/{pid}/io", "".join(f"{name}: {n}\n" for name, n in io.items()))
        for tid in tids:
            self.thread(process, tid, comm=comm, state=state)
        return process

    def thread(
        self,
        process: ProcessId,
        tid: int,
        *,
        comm: bytes = b"python3",
        state: str = "S",
        cpu_ns: int = 0,
        wait_ns: int = 0,
        user: int = 0,
        system: int = 0,
        switches: tuple[int, int] = (0, 0),
        block_io: int = 0,
    ) -> None:
        """Write one thread; `switches` are voluntary and involuntary."""
        folder = f"proc/{process.pid}/task/{tid}"
        line = stat_line(
            tid,
            comm,
            state=state,
            start=process.start_ticks,
            user=user,
            system=system,
            block_io=block_io,
        )
        self.write(f"{folder}/stat", line)
        self.write(f"{folder}/schedstat", f"{cpu_ns} {wait_ns} 17\n")
        voluntary, involuntary = switches
        self.write(
            f"{folder}/status",
            status_text(tid, comm, 0, 0)
            + f"voluntary_ctxt_switches:\t{voluntary}\n"
            + f"nonvoluntary_ctxt_switches:\t{involuntary}\n",
        )

    def open_file(self, pid: int, descriptor: int, link: str | bytes, *, info: str = "") -> None:
        """Give a process an open file."""
        self.link(f"proc/{pid}/fd/{descriptor}", link)
        if info:
            self.write(f"proc/{pid}/fdinfo/{descriptor}", info)


def stat_line(
    pid: int,
    comm: bytes,
    *,
    state: str = "S",
    parent: int = 1,
    start: int = 0,
    user: int = 0,
    system: int = 0,
    children: tuple[int, int] = (0, 0),
    faults: tuple[int, int] = (0, 0),
    rss_pages: int = 0,
    threads: int = 1,
    block_io: int = 0,
) -> bytes:
    """A line of /proc/PID/stat with all 52 fields of Linux 6."""
    minor, major = faults
    fields = [state, parent, pid, pid, 0, -1, 4194304, minor, 0, major, 0]
    fields += [user, system, *children, 20, 0, threads, 0, start, 1 << 30, rss_pages]
    fields += [(1 << 64) - 1, *([0] * 16), block_io, *([0] * 10)]
    return b"%d (%s) %s\n" % (pid, comm, " ".join(map(str, fields)).encode())


def status_text(pid: int, comm: bytes, uid: int, rss_pages: int) -> str:
    """The lines of /proc/PID/status that are read."""
    name = comm.decode("utf-8", "replace").replace("\n", "\\n")
    return (
        f"Name:\t{name}\nTgid:\t{pid}\nPid:\t{pid}\n"
        f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}\nVmRSS:\t{rss_pages * 4} kB\n"
    )


def target_of(root: ProcessId, *others: ProcessId, role: str = "worker") -> Target:
    """A resolved tree, for collectors that are given one."""
    members = [TargetProcess(root, 1, "serve.py", "main")]
    members += [TargetProcess(one, root.pid, "serve.py", role) for one in others]
    return Target(root, "serve.py", tuple(members))
