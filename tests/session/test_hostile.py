"""A recording from a bug report is untrusted: no traceback, bounded memory, whatever it holds."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import zlib
from random import Random
from typing import TYPE_CHECKING

import msgspec
import pytest

from bottletop.clock import ManualClock
from bottletop.replay import Replay
from bottletop.session.reader import NewerFormat, NotARecording, NotReadable, open_recording
from session.recording import record, recorder, ticks
from session.scripted import ScriptedHost

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished recording of 62 ticks: blocks, judgements, findings."""
    path = tmp_path_factory.mktemp("sound") / "sound.btrec"
    record(path, 62, ScriptedHost(gpus=1, cores=1, disks=1, processes=1, stages=1))
    return path


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The main file of a recording that never ended, its tail within it."""
    folder = tmp_path_factory.mktemp("unfinished")
    host = ScriptedHost(gpus=1, cores=2, disks=1, processes=2, stages=1)
    to = recorder(folder / "live.btrec", host)
    ticks(host, to, 40)
    assert to.flush()
    db = sqlite3.connect(folder / "live.btrec")
    db.execute("PRAGMA wal_checkpoint(PASSIVE)")
    db.close()
    shutil.copy(folder / "live.btrec", folder / "copy.btrec")
    to.close(10)
    return folder / "copy.btrec"


def read_all(path: Path) -> int:
    """Everything that screens and commands do with a file. Raises `NotReadable` at most."""
    with open_recording(path) as recording:
        count = sum(1 for _ in recording.events())
        count += len(recording.findings()) + len(recording.marks())
        count += sum(1 for _ in recording.evaluations())
        assert recording.thresholds is not None
        replay = Replay(recording, ManualClock())
        replay.seek(recording.start_ns + (recording.end_ns - recording.start_ns) // 2)
        replay.step(-2)
        replay.snapshot()
        recording.info()
    return count


def edited(sound: Path, tmp_path: Path, edit: Callable[[sqlite3.Connection], object]) -> Path:
    """A copy that somebody has been at with SQL."""
    path = tmp_path / "edited.btrec"
    shutil.copy(sound, path)
    path.chmod(0o600)
    db = sqlite3.connect(path)
    edit(db)
    db.commit()
    db.close()
    return path


def test_what_is_not_a_recording_is_refused_in_one_line(tmp_path: Path, sound: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "noise").write_bytes(Random(1).randbytes(20_000))
    (tmp_path / "text").write_text("hello\n" * 1000)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE meta(k, v)").connection.close()
    for name in ("empty", "noise", "text", "folder", "pipe", "other.db", "/dev/zero"):
        with pytest.raises(NotARecording) as refusal:
            open_recording(tmp_path / name)
        assert "\n" not in str(refusal.value)
        assert name in str(refusal.value)
    with pytest.raises(NotReadable, match="No such file"):
        open_recording(tmp_path / "nowhere")
    for bad in ("nul\0byte", "x" * 5000):
        with pytest.raises(NotReadable):
            open_recording(bad)
    assert read_all(sound) > 0


def test_a_name_full_of_signs_is_only_a_name(tmp_path: Path, sound: Path) -> None:
    path = tmp_path / "a?mode=rwc&x#y%41 z.btrec"
    shutil.copy(sound, path)
    assert read_all(path) == read_all(sound)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_newer_format_names_the_version_that_reads_it(tmp_path: Path, sound: Path) -> None:
    path = edited(sound, tmp_path, lambda db: db.execute("PRAGMA user_version=3002"))
    with pytest.raises(NewerFormat, match=r"bottletop 9\.9 in format 3\.2.*reads format 1"):
        open_recording(path)


def test_a_newer_minor_is_read_and_what_is_new_is_listed(tmp_path: Path, sound: Path) -> None:
    def later(db: sqlite3.Connection) -> None:
        db.execute("PRAGMA user_version=1007")
        db.execute("CREATE TABLE overview(tbl, t0, data)")
        db.execute("ALTER TABLE block ADD COLUMN checksum")
        db.execute("INSERT INTO series VALUES('gpu', 99, 'warp_stall', 'gauge', '%', 0.1)")
        db.execute("INSERT INTO series VALUES('npu', 0, 'util_pct', 'gauge', '%', 1)")
        db.execute(
            "INSERT INTO block(tbl, a0, a1, t0, t1, n, codec, data)"
            " SELECT 'npu', a0, a1, t0, t1, n, codec, data FROM block WHERE tbl='gpu'"
        )
        db.execute("UPDATE block SET codec=7 WHERE tbl='psi'")

    path = edited(sound, tmp_path, later)
    with open_recording(path) as recording:
        names = {
            event.sample.table.name for event in recording.events() if hasattr(event, "sample")
        }
        info = recording.info()
    assert "gpu" in names
    assert "psi" not in names
    assert info.unknown_tables == ("npu",)
    assert info.unknown_columns == ("gpu.warp_stall",)
    assert info.damaged > 0
    assert all("codec 7" in what for what in info.damage)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER t AFTER INSERT ON mark BEGIN DELETE FROM block; END",
        "CREATE VIEW v AS SELECT * FROM meta",
        "CREATE INDEX i ON block(abs(a0))",
        "CREATE VIRTUAL TABLE v USING fts5(x)",
        "ALTER TABLE block ADD COLUMN g AS (abs(a0))",
        "DROP TABLE block",
        "ALTER TABLE block RENAME COLUMN a1 TO b1",
        "DELETE FROM meta",
        "UPDATE meta SET v='soon' WHERE k='anchor_mono_ns'",
        "UPDATE meta SET v=-1 WHERE k='anchor_wall_ns'",
        "PRAGMA application_id=7",
        "PRAGMA user_version=-5",
        "PRAGMA user_version=12",
    ],
)
def test_a_schema_or_header_of_nobodys_making_is_refused(
    tmp_path: Path, sound: Path, statement: str
) -> None:
    with pytest.raises(NotARecording):
        open_recording(edited(sound, tmp_path, lambda db: db.execute(statement)))


def test_a_view_in_place_of_a_table_is_refused(tmp_path: Path, sound: Path) -> None:
    def disguise(db: sqlite3.Connection) -> None:
        db.execute("ALTER TABLE string RENAME TO strings2")
        db.execute("CREATE VIEW string AS SELECT id, printf('%.*c', 9999999, 'x') text FROM block")

    with pytest.raises(NotARecording):
        open_recording(edited(sound, tmp_path, disguise))


WRONG = (None, -1, 2**63 - 1, -(2**63), 0, 1.5, 1e308, "text", "9" * 1000, b"\x00\xff" * 50)


@pytest.mark.parametrize("table", ["block", "evaluation", "finding", "mark", "series", "string"])
def test_wrong_values_in_any_column_are_skipped(tmp_path: Path, sound: Path, table: str) -> None:
    db = sqlite3.connect(sound)
    columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})") if row[1] != "id"]
    db.close()
    for column in columns:
        for wrong in WRONG:

            def spoil(db: sqlite3.Connection, column: str = column, wrong: object = wrong) -> None:
                db.execute("PRAGMA writable_schema=ON")
                db.execute("UPDATE sqlite_master SET sql=replace(sql, ' NOT NULL', '')")
                db.commit()
                db.execute("PRAGMA writable_schema=RESET")
                db.execute(f"UPDATE {table} SET {column}=?", (wrong,))

            read_all(edited(sound, tmp_path, spoil))


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: repr(wrong)[:12])
def test_wrong_facts_are_left_out(tmp_path: Path, sound: Path, wrong: object) -> None:
    def spoil(db: sqlite3.Connection) -> None:
        db.execute("UPDATE meta SET v=? WHERE k NOT LIKE 'anchor%'", (wrong,))

    path = edited(sound, tmp_path, spoil)
    assert read_all(path) > 0


def test_bad_thresholds_are_no_thresholds(tmp_path: Path, sound: Path) -> None:
    for text in ("[" * 100_000, "[]", '{"a": 3}', '{"a": {"b": "c", "d": 1e999, "e": NaN}}', "nul"):
        path = edited(
            sound,
            tmp_path,
            lambda db, text=text: db.execute("UPDATE meta SET v=? WHERE k='thresholds'", (text,)),
        )
        with open_recording(path) as recording:
            assert not any(recording.thresholds.values())


def test_texts_cannot_act_on_a_terminal(tmp_path: Path, sound: Path) -> None:
    evil = "\x1b]0;owned\x07\x9b31m‮\nname"

    def spoil(db: sqlite3.Connection) -> None:
        db.execute("UPDATE string SET text=?", (evil,))
        db.execute("UPDATE meta SET v=? WHERE k='host'", (evil,))
        db.execute(
            "INSERT INTO mark(arrival, t, kind, text) VALUES(3, 1003000000000, ?, ?)", (evil,) * 2
        )

    with open_recording(edited(sound, tmp_path, spoil)) as recording:
        shown = repr(recording.meta["host"]) + repr(recording.marks()) + repr(recording.findings())
        texts = [event.sample.source for event in recording.events() if hasattr(event, "sample")]
    assert texts
    for shown_text in (*texts, shown):
        assert not set(shown_text) & set("\x1b\x07\x9b‮\n")
        assert "\\x1b" not in shown_text


def test_blobs_beyond_all_measure_are_skipped(tmp_path: Path, sound: Path) -> None:
    def spoil(db: sqlite3.Connection) -> None:
        db.execute("UPDATE block SET data=zeroblob(40000000) WHERE tbl='gpu'")
        bomb = zlib.compress(b"\x90" * 60_000_000, 9)
        db.execute("UPDATE block SET data=? WHERE tbl='core'", (bomb,))
        db.execute("UPDATE evaluation SET data=?", (bomb,))
        db.execute(
            "INSERT INTO tail VALUES(1, 1001000000000, 1001000000000, 0, zeroblob(30000000))"
        )

    path = edited(sound, tmp_path, spoil)
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with open_recording(path) as recording:
        names = {
            event.sample.table.name for event in recording.events() if hasattr(event, "sample")
        }
        assert recording.info().damaged >= 3
    assert "gpu" not in names
    assert "core" not in names
    assert "disk" in names
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 200_000


def test_a_block_of_a_million_lies_stays_within_bounds(tmp_path: Path, sound: Path) -> None:
    """The largest block that decoding accepts, filled to the brim with the cheapest bytes."""
    empty = [None] * 60
    lies = [
        [4096, 1, 1, 1, 1, [[0] * 100], 0, [], [[1, 0, empty]]],
        [1, 1, 1, 1, 1, [[]] * 4096, 0, [[0]] * 400_000, []],
        [1, 1, 1, 1, 1, [[]], 0, [], [[1, 0, [[1] * 3_000_000]]]],
    ]

    def spoil(db: sqlite3.Connection) -> None:
        for name, lie in zip(("gpu", "core", "disk"), lies, strict=True):
            data = zlib.compress(msgspec.msgpack.encode(lie))
            db.execute("UPDATE block SET data=? WHERE tbl=?", (data, name))

    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert read_all(edited(sound, tmp_path, spoil)) > 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 300_000


def test_files_cut_anywhere_open_or_are_refused(
    tmp_path: Path, sound: Path, unfinished: Path
) -> None:
    random = Random(4)
    for whole in (sound, unfinished):
        data = whole.read_bytes()
        path = tmp_path / "cut.btrec"
        for _ in range(40):
            path.write_bytes(data[: random.randrange(len(data))])
            try:
                read_all(path)
            except NotReadable:
                continue


def test_flipped_bytes_are_refused_skipped_or_harmless(
    tmp_path: Path, sound: Path, unfinished: Path
) -> None:
    random = Random(5)
    opened = 0
    for whole in (sound, unfinished):
        data = bytearray(whole.read_bytes())
        path = tmp_path / "flipped.btrec"
        for _ in range(80):
            changed = bytearray(data)
            for _ in range(random.choice((1, 3, 30))):
                changed[random.randrange(len(changed))] = random.randrange(256)
            path.write_bytes(changed)
            try:
                read_all(path)
                opened += 1
            except NotReadable:
                continue
    assert opened > 60  # most of a file is blocks: one of them goes, the others stay


def test_a_damaged_block_costs_only_itself(tmp_path: Path, sound: Path) -> None:
    def spoil(db: sqlite3.Connection) -> None:
        (number, data) = db.execute("SELECT id, data FROM block WHERE tbl='gpu'").fetchone()
        middle = len(data) // 2
        changed = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        db.execute("UPDATE block SET data=? WHERE id=?", (changed, number))

    with open_recording(sound) as recording:
        whole = list(recording.events())
    with open_recording(edited(sound, tmp_path, spoil)) as recording:
        left = list(recording.events())
        assert recording.info().damaged == 1
    assert len(whole) > len(left) > len(whole) * 0.9
    assert [event for event in whole if event in left] == left
