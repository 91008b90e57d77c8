"""Makes the file of a recording: new, private, and surely the one that is then opened."""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from bottletop.session import schema

if TYPE_CHECKING:
    from pathlib import Path

WAL_PAGES = 256
"""Pages after which SQLite moves the log into the main file: 1 MiB."""
WAL_LIMIT_BYTES = 4 * 1024 * 1024
BUSY_TIMEOUT_S = 0.2


class FileId(NamedTuple):
    """What tells a file from another of the same name."""

    device: int
    inode: int


def create(path: Path) -> FileId:
    """Make an empty file that only its owner can read. Raises FileExistsError and OSError."""
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        fd = os.open(path, flags, 0o600)
    except FileExistsError:
        reason = "file exists, and a recording never overwrites one"
        raise FileExistsError(errno.EEXIST, reason, str(path)) from None
    try:
        made = os.fstat(fd)
    finally:
        os.close(fd)
    return FileId(made.st_dev, made.st_ino)


def connect(path: Path, made: FileId, *, synchronous: str) -> sqlite3.Connection:
    """Open the file that `create` made, and nothing that was put in its place.

    Raises sqlite3.Error and OSError.
    """
    db = sqlite3.connect(path, isolation_level=None, timeout=BUSY_TIMEOUT_S)
    try:
        if _identity(path) != made:
            raise OSError(f"{path} was replaced while it was being opened")
        run = db.execute
        run("PRAGMA auto_vacuum=INCREMENTAL")  # only possible before the first table
        run("PRAGMA page_size=4096")
        run("PRAGMA secure_delete=OFF")  # some builds would write zeros over every freed page
        run(f"PRAGMA application_id={schema.APPLICATION_ID}")
        run(f"PRAGMA user_version={schema.USER_VERSION}")
        if run("PRAGMA journal_mode=WAL").fetchone()[0] != "wal":
            # Network file systems have no shared memory; held alone, the log works without it.
            run("PRAGMA locking_mode=EXCLUSIVE")
            run("PRAGMA journal_mode=WAL")
        run(f"PRAGMA synchronous={'FULL' if synchronous == 'FULL' else 'NORMAL'}")
        run(f"PRAGMA wal_autocheckpoint={WAL_PAGES}")
        run(f"PRAGMA journal_size_limit={WAL_LIMIT_BYTES}")
    except BaseException:
        db.close()
        raise
    return db


def discard(path: Path, made: FileId) -> None:
    """Remove the file that `create` made, where it never became a recording, and nothing else."""
    with suppress(OSError):
        if _identity(path) == made:
            for name in (f"{path.name}-wal", f"{path.name}-shm", f"{path.name}-journal"):
                path.with_name(name).unlink(missing_ok=True)
            path.unlink()


def _identity(path: Path) -> FileId:
    found = os.lstat(path)
    return FileId(found.st_dev, found.st_ino)
