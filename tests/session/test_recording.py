"""A recording gives back the run: everything, in order, from one private file."""

from __future__ import annotations

import os
import sqlite3
import stat
from typing import TYPE_CHECKING

import pytest

from bottletop.model import NS_PER_S, Anchor, Judgement, Sample
from bottletop.session import newfile
from bottletop.session.events import Arrived, Evaluated, Mark
from bottletop.session.reader import open_recording
from bottletop.tables import Core, Gpu, HotThread
from session.recording import META, THRESHOLDS, record, recorder, tick, ticks
from session.scripted import ScriptedHost, judgement

if TYPE_CHECKING:
    from pathlib import Path


def test_everything_comes_back_in_the_order_in_which_it_arrived(tmp_path: Path):
    """Late sources, absent values, changing texts, taken-over pids: 200 ticks, several blocks."""
    handed = record(tmp_path / "a.btrec", 200)
    with open_recording(tmp_path / "a.btrec") as recording:
        assert list(recording.events()) == handed
        assert recording.info().damaged == 0


def test_a_late_source_keeps_its_place_and_its_stamp(tmp_path: Path):
    handed = record(tmp_path / "a.btrec", 10)
    newest = 0
    late = 0
    with open_recording(tmp_path / "a.btrec") as recording:
        for event in recording.events():
            if isinstance(event, Arrived):
                late += event.sample.t_ns < newest
                newest = max(newest, event.sample.t_ns)
    assert late == sum(
        one.sample.t_ns < max(s.sample.t_ns for s in handed[:at] if isinstance(s, Arrived))
        for at, one in enumerate(handed)
        if at and isinstance(one, Arrived)
    )
    assert late > 0


def test_a_recording_can_be_read_while_it_is_written(tmp_path: Path):
    host, path = ScriptedHost(), tmp_path / "a.btrec"
    to = recorder(path, host)
    first = ticks(host, to, 90)
    assert to.flush()
    with open_recording(path) as recording:
        handed = first + ticks(host, to, 90, first[-1].arrival)
        assert to.flush()  # meanwhile blocks were sealed, and rows of the tail deleted
        assert list(recording.events()) == first
        assert not recording.ended_cleanly
        said = [event.judgement.t_ns for event in first if isinstance(event, Evaluated)]
        assert recording.evaluation_times == said
        assert recording.info().evaluations == 90
    to.close(10)
    with open_recording(path) as recording:
        assert recording.ended_cleanly
        assert list(recording.events()) == handed


def test_facts_of_the_run_are_in_the_file(tmp_path: Path):
    host = ScriptedHost()
    to = recorder(tmp_path / "a.btrec", host)
    ticks(host, to, 3)
    to.close(10)
    with open_recording(tmp_path / "a.btrec") as recording:
        assert META.items() <= recording.meta.items()
        assert recording.thresholds == THRESHOLDS
        assert recording.anchor == Anchor(1000 * NS_PER_S, 1_700_000_000 * NS_PER_S)
        assert recording.ended_cleanly
        info = recording.info()
        assert info.tables["gpu"] == 3
        assert info.tables["hot_thread"] == 12
        assert info.evaluations == 3
        assert info.synchronous == "FULL"
        assert info.format == "1.0"


def test_judgements_come_back_whole_and_by_moment(tmp_path: Path):
    handed = [e for e in record(tmp_path / "a.btrec", 130) if isinstance(e, Evaluated)]
    with open_recording(tmp_path / "a.btrec") as recording:
        assert list(recording.evaluations()) == handed
        assert recording.evaluation_times == [one.judgement.t_ns for one in handed]
        for one in handed[::17]:
            assert recording.judgement_at(one.judgement.t_ns) == one
            assert recording.judgement_at(one.judgement.t_ns + 1) == one
        assert recording.judgement_at(handed[0].judgement.t_ns - 1) is None


def test_findings_are_listed_from_onset_to_end_with_the_worst_evidence(tmp_path: Path):
    handed = [e.judgement for e in record(tmp_path / "a.btrec", 100) if isinstance(e, Evaluated)]
    with open_recording(tmp_path / "a.btrec") as recording:
        found = [one for one in recording.findings() if one.finding.code == "gpu-starved-cpu"]
    active = [[f for f in said.findings if f.active and f.scope == ""] for said in handed]
    first = next(at for at, findings in enumerate(active) if findings)
    end = next(at for at, findings in enumerate(active) if at > first and not findings)
    assert found[0].on_ns == active[first][0].since_ns
    assert found[0].off_ns == handed[end].t_ns
    losses = [findings[0].lost_gpu_s_per_s or 0 for findings in active[first:end]]
    assert (found[0].finding.lost_gpu_s_per_s or 0) * 1.1 >= max(losses)
    assert len(found) == 2
    assert found[1].off_ns is None  # still active at the end


def test_marks_keep_their_place_among_the_samples(tmp_path: Path):
    host = ScriptedHost()
    to = recorder(tmp_path / "a.btrec", host)
    handed = ticks(host, to, 2)
    to.mark(host.clock.monotonic_ns(), "user", "batch size 8 \x1b[31mfrom here")
    text = "batch size 8  [31mfrom here"
    mark = Mark(handed[-1].arrival, host.clock.monotonic_ns(), "user", text)
    after = ticks(host, to, 2, handed[-1].arrival)
    to.close(10)
    with open_recording(tmp_path / "a.btrec") as recording:
        assert recording.marks() == (mark,)
        assert list(recording.events()) == [*handed, mark, *after]


def test_reading_from_a_moment_on_has_the_last_sample_of_each_table_before_it(tmp_path: Path):
    handed = record(tmp_path / "a.btrec", 300)
    since_ns = [e for e in handed if isinstance(e, Evaluated)][250].judgement.t_ns
    with open_recording(tmp_path / "a.btrec") as recording:
        events = list(recording.events(since_ns))
    assert len(events) < len(handed) / 2
    after = [e for e in handed if isinstance(e, Arrived) and e.sample.t_ns >= since_ns]
    got = [e for e in events if isinstance(e, Arrived)]
    assert got[-len(after) :] == after
    tables = {e.sample.table for e in handed if isinstance(e, Arrived)}
    before = {e.sample.table for e in got if e.sample.t_ns < since_ns}
    assert before == tables


def test_one_private_file_is_left(tmp_path: Path):
    before = os.umask(0)
    try:
        record(tmp_path / "a.btrec", 70)
    finally:
        os.umask(before)
    assert [p.name for p in tmp_path.iterdir()] == ["a.btrec"]
    assert stat.S_IMODE((tmp_path / "a.btrec").stat().st_mode) == 0o600


def test_the_log_beside_a_live_recording_is_private_too(tmp_path: Path):
    before = os.umask(0)
    try:
        to = recorder(tmp_path / "a.btrec", ScriptedHost())
        assert to.flush()
        modes = {stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()}
    finally:
        os.umask(before)
        to.close(10)
    assert modes == {0o600}


def test_nothing_is_ever_overwritten_nor_followed(tmp_path: Path):
    (tmp_path / "there").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "there")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("there", "link", "dangling"):
        with pytest.raises(FileExistsError, match="never overwrites"):
            recorder(tmp_path / name, ScriptedHost())
    with pytest.raises(FileNotFoundError):
        recorder(tmp_path / "no" / "folder", ScriptedHost())
    assert (tmp_path / "there").read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()


def test_a_file_put_in_place_of_the_new_one_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.btrec"
    made = newfile.create(path)
    (tmp_path / "other").write_text("precious")
    (tmp_path / "other").replace(path)
    with pytest.raises(OSError, match="replaced"):
        newfile.connect(path, made, synchronous="FULL")
    newfile.discard(path, made)
    assert path.read_text() == "precious"


def test_names_are_stored_once_where_they_can_be_listed(tmp_path: Path):
    record(tmp_path / "a.btrec", 130)
    db = sqlite3.connect(tmp_path / "a.btrec")
    texts = [text for (text,) in db.execute("SELECT text FROM string")]
    assert len(texts) == len(set(texts))
    assert {"GPU-00000000-0000", "NVIDIA H100 80GB HBM3", "pt_data_worker"} <= set(texts)
    blocks = b"".join(data for (data,) in db.execute("SELECT data FROM block"))
    db.close()
    assert blocks
    assert all(name.encode() not in blocks for name in ("python3", "NVIDIA", "GPU-0000"))


def test_the_file_says_what_it_is_to_other_tools(tmp_path: Path):
    record(tmp_path / "a.btrec", 2)
    header = (tmp_path / "a.btrec").read_bytes()[:100]
    assert header[68:72] == b"BTRC"
    assert int.from_bytes(header[60:64], "big") == 1000


def test_arrival_numbers_that_do_not_grow_are_ignored(tmp_path: Path):
    host = ScriptedHost()
    to = recorder(tmp_path / "a.btrec", host)
    handed = tick(host, to, 100)
    to.sample(50, Sample("late", Core, host.clock.monotonic_ns(), 0, ()))
    to.close(10)
    with open_recording(tmp_path / "a.btrec") as recording:
        assert list(recording.events()) == handed


def test_an_empty_recording_opens(tmp_path: Path):
    to = recorder(tmp_path / "a.btrec", ScriptedHost())
    to.close(10)
    with open_recording(tmp_path / "a.btrec") as recording:
        assert list(recording.events()) == []
        assert recording.start_ns == recording.end_ns == recording.anchor.mono_ns


def test_a_seldom_read_table_does_not_hold_the_tail_up(tmp_path: Path):
    """The cgroup is read every fifth tick; its block is sealed by age, and the tail goes."""
    host = ScriptedHost()
    to = recorder(tmp_path / "a.btrec", host)
    ticks(host, to, 200)
    assert to.flush()
    db = sqlite3.connect(f"file:{tmp_path / 'a.btrec'}?mode=ro", uri=True)
    (rows,) = db.execute("SELECT count(*) FROM tail").fetchone()
    db.close()
    to.close(10)
    assert 0 < rows <= 130


def test_a_sample_beyond_all_measure_is_cut_with_a_mark(tmp_path: Path):
    host = ScriptedHost()
    to = recorder(tmp_path / "a.btrec", host)
    t_ns = host.clock.monotonic_ns()
    rows = tuple(HotThread.row(f"{at}@1/{at}", t_ns, {HotThread.cpu_ns: at}) for at in range(500))
    many = rows * 700
    to.sample(1, Sample("hot_thread", HotThread, t_ns, 0, many))
    to.close(30)
    assert not to.status().error
    with open_recording(tmp_path / "a.btrec") as recording:
        (event, mark) = recording.events()
        assert isinstance(event, Arrived)
        kept = len(event.sample.rows)
        assert event.sample.rows == many[:kept]
        assert isinstance(mark, Mark)
        assert mark.kind == "drop"
        assert str(len(many) - kept) in mark.text
        assert to.status().dropped_rows == len(many) - kept > 0


def test_a_recorder_that_is_closed_takes_nothing_more(tmp_path: Path):
    host = ScriptedHost()
    to = recorder(tmp_path / "a.btrec", host)
    handed = tick(host, to, 0)
    to.close(10)
    to.close(10)
    to.sample(10**6, Sample("late", Gpu, host.clock.monotonic_ns(), 0, ()))
    to.evaluated(10**6, judgement(host))
    assert not to.flush()
    with open_recording(tmp_path / "a.btrec") as recording:
        assert list(recording.events()) == handed


def test_a_judgement_with_no_sample_before_it_is_kept(tmp_path: Path):
    host = ScriptedHost()
    to = recorder(tmp_path / "a.btrec", host)
    said: list[Judgement] = []
    for _ in range(3):
        host.clock.advance(1)
        said.append(judgement(host))
        to.evaluated(0, said[-1])
    to.close(10)
    with open_recording(tmp_path / "a.btrec") as recording:
        assert [e.judgement for e in recording.events() if isinstance(e, Evaluated)] == said
