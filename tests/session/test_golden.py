"""Later releases read every earlier file: one of each format is kept and read for ever."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from bottletop import report
from bottletop.clock import ManualClock
from bottletop.model import Absent, State
from bottletop.replay import Replay, judge_again
from bottletop.session.events import Arrived
from bottletop.session.reader import open_recording
from bottletop.tables import metric

FOLDER = Path(__file__).resolve().parent / "golden"
FILES = sorted(FOLDER.glob("v*.btrec"))


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    facts = json.loads(request.param.with_suffix(".json").read_text())
    return Path(shutil.copy(request.param, tmp_path)), facts


def test_there_is_one_of_each_format() -> None:
    assert [path.stem for path in FILES] == ["v1"]


def test_it_opens_whole(golden: tuple[Path, dict[str, Any]]) -> None:
    path, facts = golden
    with open_recording(path) as recording:
        samples = [event for event in recording.events() if isinstance(event, Arrived)]
        info = recording.info()
        assert recording.meta["host"] == facts["host"]
        assert recording.ended_cleanly
        assert [mark.text for mark in recording.marks()] == ["the end is near"]
    assert (info.damaged, info.unknown_tables, info.unknown_columns) == (0, (), ())
    assert len(samples) == facts["samples"]
    assert sum(len(one.sample.rows) for one in samples) == facts["rows"]
    assert [one.arrival for one in samples[::97]] == facts["arrivals"]
    assert sorted(info.tables) == facts["tables"]


def test_its_values_are_what_was_recorded(golden: tuple[Path, dict[str, Any]]) -> None:
    path, facts = golden
    with open_recording(path) as recording:
        samples = {e.arrival: e.sample for e in recording.events() if isinstance(e, Arrived)}
    for wanted in facts["values"]:
        row = samples[wanted["arrival"]].rows[0]
        value = row.values[metric(wanted["metric"]).index]
        expected = wanted["value"]
        if isinstance(expected, list):
            expected = Absent(State(expected[0]), *expected[1:])
        assert (row.key, row.t_ns, value) == (wanted["key"], wanted["t_ns"], expected)
    assert len(facts["values"]) > 300


def test_its_judgements_are_what_was_said(golden: tuple[Path, dict[str, Any]]) -> None:
    path, facts = golden
    with open_recording(path) as recording:
        said = [one.judgement for one in recording.evaluations()]
        assert len(said) == facts["judgements"]
        assert [one.verdict.text for one in said[::10]] == facts["verdicts"]
        assert sorted({one.finding.code for one in recording.findings()}) == facts["findings"]


def test_it_can_be_replayed_and_judged_by_the_rules_of_today(
    golden: tuple[Path, dict[str, Any]],
) -> None:
    path, facts = golden
    with open_recording(path) as recording:
        replay = Replay(recording, ManualClock())
        for _ in range(facts["judgements"]):
            replay.step(1)
            assert replay.snapshot().target is not None
        watch = judge_again(recording)
        assert report.document(watch)["target"]["name"] == "python3"
        assert "python3" in report.text(watch)
