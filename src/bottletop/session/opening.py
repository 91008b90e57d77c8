"""Opens a file that may come from anybody, read-only, and refuses what is not a recording.

Nothing in or beside a finished recording is written. One that was killed, or is still being
written, has a `-wal` file beside it that SQLite reads along: it may refresh the `-shm` file, never
the recording itself. Where that is not possible (a read-only folder, a lost `-shm`) the main file
is read alone, and a note says that its last seconds may be missing.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path
from typing import NamedTuple

from bottletop.session import schema
from bottletop.session.strings import readable

BUSY_TIMEOUT_S = 2.0
_PRAGMAS = ("query_only=ON", "trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0")
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: schema.MAX_BLOB_BYTES + 65_536,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 20_000,
    sqlite3.SQLITE_LIMIT_COLUMN: 100,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 20,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 2,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_TRANSACTION}


class NotReadable(Exception):
    """A file cannot be opened as a recording. The message is one line that names it."""


class NotARecording(NotReadable):
    """The file is something else, or was made to look like a recording."""


class NewerFormat(NotReadable):
    """The file was recorded by a later bottletop in a form that this one cannot read."""


class Opened(NamedTuple):
    """A checked, read-only connection."""

    db: sqlite3.Connection
    minor: int
    notes: tuple[str, ...]


def open_checked(path: str | Path) -> Opened:
    """Open and check a recording. Raises `NotReadable`."""
    path = Path(path).absolute()
    _require_file(path)
    wal = path.with_name(path.name + "-wal")
    attempts = [("mode=ro", "")] if wal.exists() else []
    note = "its -wal file could not be read along: the last seconds may be missing"
    attempts.append(("mode=ro&immutable=1", note if attempts else ""))
    problem = ""
    for options, remark in attempts:
        try:
            db = _connect(path, options)
        except sqlite3.OperationalError as error:
            problem = str(error)
            continue
        except (sqlite3.Error, ValueError) as error:
            raise NotARecording(f"{path}: not a recording: {error}") from None
        try:
            return Opened(db, _check(db, path), (remark,) if remark else ())
        except BaseException:
            db.close()
            raise
    raise NotReadable(f"{path}: cannot be read: {problem}")


def _require_file(path: Path) -> None:
    try:
        found = os.stat(path)
    except OSError as error:
        raise NotReadable(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise NotReadable(f"{path!r}: {error}") from None
    if not stat.S_ISREG(found.st_mode):
        raise NotARecording(f"{path}: not a recording: not a regular file")
    if not os.access(path, os.R_OK):
        raise NotReadable(f"{path}: permission denied")
    if not found.st_size:
        raise NotARecording(f"{path}: not a recording: the file is empty")


def _connect(path: Path, options: str) -> sqlite3.Connection:
    db = sqlite3.connect(
        f"{path.as_uri()}?{options}",
        uri=True,
        isolation_level=None,
        timeout=BUSY_TIMEOUT_S,
        check_same_thread=False,
    )
    try:
        for category, limit in _LIMITS.items():
            db.setlimit(category, limit)
        db.text_factory = lambda raw: raw.decode("utf-8", "replace")
        for pragma in _PRAGMAS:
            db.execute(f"PRAGMA {pragma}")
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        db.close()
        raise
    return db


def _check(db: sqlite3.Connection, path: Path) -> int:
    """Refuse what is not one of ours; return the minor version."""
    try:
        magic = db.execute("PRAGMA application_id").fetchone()[0]
        version: int = db.execute("PRAGMA user_version").fetchone()[0]
        if magic != schema.APPLICATION_ID:
            raise NotARecording(f"{path}: not a recording: an SQLite file of another program")
        major, minor = divmod(version, 1000)
        if major > schema.MAJOR:
            raise NewerFormat(
                f"{path}: recorded by {_writer(db)} in format {major}.{minor}; this version reads"
                f" format {schema.MAJOR}: use that version or a newer one"
            )
        if major < 1:
            raise NotARecording(f"{path}: not a recording: format version {version}")
        reason = _schema_problem(db)
    except sqlite3.Error as error:
        raise NotARecording(f"{path}: not a recording: {error}") from None
    if reason:
        raise NotARecording(f"{path}: not a recording: {reason}")
    db.set_authorizer(
        lambda action, *_: sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY
    )
    return minor


def _writer(db: sqlite3.Connection) -> str:
    try:
        found = db.execute("SELECT v FROM meta WHERE k='bottletop' LIMIT 1").fetchone()
    except sqlite3.Error:
        found = None
    if found and isinstance(found[0], str):
        return f"bottletop {readable(found[0])[:40]}"
    return "a later bottletop"


def _schema_problem(db: sqlite3.Connection) -> str:
    """What in the schema no recorder of ours would write; empty when there is nothing."""
    tables = set()
    for kind, name, sql in db.execute("SELECT type, name, sql FROM sqlite_master LIMIT 1000"):
        if kind == "table" and isinstance(name, str) and isinstance(sql, str):
            if not sql.upper().startswith("CREATE TABLE"):
                return f"{readable(name)} is a virtual table"
            tables.add(name)
        elif kind != "index":
            return f"it has a {readable(str(kind))}"
        elif sql is not None:
            return f"it has an index of its own, {readable(str(name))}"
    for table, columns in schema.TABLES.items():
        if table not in tables:
            return f"it has no table {table}"
        found = db.execute(f"PRAGMA table_xinfo({table})").fetchall()
        if any(row[6] for row in found):
            return f"table {table} has a generated column"
        missing = columns.keys() - {row[1] for row in found}
        if missing:
            return f"table {table} has no column {min(missing)}"
    return ""
