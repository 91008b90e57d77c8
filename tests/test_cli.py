"""What a person may get wrong ends in one clear line and the right exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bottletop.cli import main

ROOT = Path(__file__).resolve().parent.parent


def complaint(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert lines
    assert lines[0].startswith("bottletop: ")
    assert "Traceback" not in captured.err
    return captured.err


NO_PID = "4194305"
"""Above the kernel's largest pid."""


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["report", "--pid", NO_PID], 3, "no process"),
        (["record", "--pid", NO_PID, "-o", "x.btrec"], 3, "no process"),
        (["attach", NO_PID], 3, "no process"),
        (["attach", "no-such-name-anywhere"], 3, "no process matches"),
        (["report", "missing.btrec"], 2, "missing.btrec"),
        (["replay", "missing.btrec"], 2, "missing.btrec"),
        (["report", "notes.txt"], 2, "notes.txt"),
        (["report", "."], 2, "not a regular file"),
        (["report", "x.btrec", "--pid", "1"], 2, "leave --pid"),
        (["report", "--root", "."], 2, "not a captured host tree"),
        (["rules", "no-such-rule"], 2, "no rule"),
        (["demo", "no-such-scenario"], 2, "known:"),
        (["run"], 2, "run what?"),
        (["record", "-o", ""], 2, "which file?"),
        (["run", "--no-tui", "--", "no-such-command-anywhere"], 3, "no-such-command-anywhere"),
        (["record", "--for", "1s", "-o", "no/such/folder/x.btrec"], 3, "No such file"),
        ([], 2, "not a terminal"),
        (["attach", "1"], 2, "not a terminal"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_one_clear_line(
    arguments: list[str],
    code: int,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "notes.txt").write_text("not a recording\n" * 1000)
    assert main(arguments) == code
    assert says in complaint(capsys)


def test_a_recording_is_never_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept.btrec"
    kept.write_bytes(b"precious")
    assert main(["record", "--for", "1s", "-o", str(kept)]) == 3
    assert "exists" in complaint(capsys)
    assert kept.read_bytes() == b"precious"


def test_a_wrong_configuration_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "bottletop"
    folder.mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (folder / "config.toml").write_text("[rules.gpu-starved-cpu]\nno_such = 1\n")
    assert main(["report", "--for", "1s"]) == 2
    assert "no_such" in complaint(capsys)
    (folder / "config.toml").write_text("[rules.no-such-rule]\nx = 1\n")
    assert main(["report", "--for", "1s"]) == 2
    assert "no-such-rule" in complaint(capsys)


def test_rules_are_listed_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules"]) == 0
    listing = capsys.readouterr().out
    assert "gpu-starved-cpu" in listing
    assert main(["rules", "gpu-starved-cpu"]) == 0
    explained = capsys.readouterr().out
    for heading in ("What", "Why", "How judged", "What to do", "When it is wrong", "References"):
        assert heading in explained


def test_scenarios_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--list"]) == 0
    listed = capsys.readouterr().out
    for name in ("cpu-starved", "io-starved", "bursty", "healthy", "throttled", "contended"):
        assert name in listed


def test_report_json_is_the_documented_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    target = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        code = main(["report", "--pid", str(target.pid), "--for", "2s", "--json"])
    finally:
        target.communicate(b"\n", timeout=10)
    document = json.loads(capsys.readouterr().out)
    assert code in (0, 1)
    assert document["schema"] == 1
    assert document["target"]["pid"] == target.pid
    assert document["watched_s"] >= 1
    described = (ROOT / "docs" / "json.md").read_text()
    for field in document:
        assert f"`{field}" in described
    assert {source["name"] for source in document["sources"]} >= {"core", "process", "gpu"}


@pytest.mark.parametrize("arguments", ["rules", "rules disk-saturated", "demo --list"])
@pytest.mark.parametrize(
    ("redirected", "says"),
    [(">/dev/full", "standard output: No space left on device"), (">&-", "output is closed")],
)
def test_output_that_cannot_be_written_is_one_line(
    arguments: str, redirected: str, says: str, tmp_path: Path
) -> None:
    env = {"PYTHONPATH": str(ROOT / "src"), "HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        ["sh", "-c", f"exec '{sys.executable}' -m bottletop {arguments} {redirected}"],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    (line,) = done.stderr.splitlines()
    assert line.startswith("bottletop: ")
    assert says in line
    assert done.returncode == 3


def test_a_closed_pipe_is_not_an_error(tmp_path: Path) -> None:
    env = {"PYTHONPATH": str(ROOT / "src"), "HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{sys.executable} -m bottletop rules | head -1"],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.stderr == ""
    assert done.returncode == 0
