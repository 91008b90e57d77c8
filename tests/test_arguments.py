"""The command line explains itself and refuses nonsense with exit code 2."""

from __future__ import annotations

import argparse

import pytest

from bottletop.arguments import duration, parser


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("5m", 300), ("1h30m", 5400), ("90", 90), ("0.5s", 0.5), ("1m30", 90)],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-3s", "3x", "1e9", "0", "nan", "40000h", "3 s x"])
def test_wrong_durations(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        duration(text)


@pytest.mark.parametrize(
    "command", ["attach", "run", "demo", "record", "replay", "report", "rules"]
)
def test_every_command_has_help_with_an_example(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parser().parse_args([command, "--help"])
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    assert "examples:" in shown
    assert f"bottletop {command}" in shown


@pytest.mark.parametrize("text", ["abc", "-1", "1.5", "", "٣", "0x10"])
def test_what_is_no_process_id_is_said_in_plain_words(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parser().parse_args(["report", f"--pid={text}"])
    assert caught.value.code == 2
    assert f"{text!r} is not a process id" in capsys.readouterr().err


def test_an_unknown_option_is_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parser().parse_args(["report", "--nonsense"])
    assert caught.value.code == 2
    assert "--nonsense" in capsys.readouterr().err


def test_run_keeps_the_command_as_given() -> None:
    arguments = parser().parse_args(["run", "--no-tui", "--", "python", "-c", "1", "--json"])
    assert arguments.cmd[-4:] == ["python", "-c", "1", "--json"]
    assert not arguments.json
