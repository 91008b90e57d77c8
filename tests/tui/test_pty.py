"""The dashboard on a real terminal: it appears, it answers, and it leaves the terminal in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pty_harness import PATIENCE_S, PtyProgram

TESTS = Path(__file__).parents[1]
PROGRAM = Path(__file__).with_name("pty_program.py")


def start(
    *arguments: str,
    size: tuple[int, int] = (80, 24),
    controlling: bool = True,
    **env: str,
) -> PtyProgram:
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent / "src")])
    return PtyProgram(
        [sys.executable, str(PROGRAM), *arguments],
        size=size,
        env={"PYTHONPATH": paths, **env},
        controlling=controlling,
    )


def test_q_leaves_and_restores_the_terminal() -> None:
    with start("live") as program:
        screen = program.wait_for("Findings")
        assert "BOTTLENECK" in screen
        assert 1049 in program.modes_left()
        program.press("q")
        assert program.wait() == 0
        assert program.is_restored()


def test_ctrl_z_goes_back_to_the_shell_and_fg_returns() -> None:
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent / "src")])
    shell = ["bash", "--norc", "--noediting", "-i"]
    with PtyProgram(shell, env={"PYTHONPATH": paths, "PS1": "ready> "}) as program:
        program.wait_for("ready>")
        program.press(f"'{sys.executable}' '{PROGRAM}' live", "enter")
        program.wait_for("Findings")
        program.press("ctrl+z")
        program.wait_for("Stopped")
        assert 1049 not in program.modes_left()
        program.press("fg", "enter")
        program.wait_for(lambda _: 1049 in program.modes_left())
        prompts = program.raw.count(b"ready>")
        program.press("q")
        # What is typed before the shell asks again may be thrown away with the terminal's input.
        program.wait_for(lambda _: program.raw.count(b"ready>") > prompts)
        assert program.is_restored()
        program.press("exit $?", "enter")
        assert program.wait() == 0


def test_without_a_shell_to_continue_it_ctrl_z_does_not_stop_it() -> None:
    with start("live") as program:
        program.wait_for("Findings")
        program.press("ctrl+z")
        program.wait_for("no shell to go back to")
        program.press("q")
        assert program.wait() == 0


def test_a_call_that_never_returns_does_not_hold_quitting_up() -> None:
    with start("stuck") as program:
        program.wait_for("Findings")
        program.press("q")
        assert program.wait() == 0
        assert program.is_restored()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=["term", "hup"]
)
def test_a_signal_closes_the_recording_and_restores_the_terminal(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    closed = tmp_path / "closed"
    with start("recording", str(closed)) as program:
        program.wait_for("REC")
        program.send(number)
        assert program.wait() == code
        assert program.is_restored()
    assert closed.read_text() == "closed"


@pytest.mark.parametrize("controlling", [True, False], ids=["with-sighup", "without-sighup"])
def test_a_dropped_line_ends_the_program_and_closes_the_recording(
    controlling: bool, tmp_path: Path
) -> None:
    closed = tmp_path / "closed"
    with start("recording", str(closed), controlling=controlling) as program:
        program.wait_for("REC")
        program.hang_up()
        assert program.wait() == 129
    assert closed.read_text() == "closed"


def test_a_terminal_that_takes_no_more_does_not_hold_the_end_up(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    with start("recording", str(closed)) as program:
        program.wait_for("REC")
        program.stall()
        program.send(signal.SIGTERM)
        assert program.process.wait(PATIENCE_S) == 143
        program.wait()
        assert b"\x1b[?1049l" not in program.raw, "it could still write: nothing was stuck"
    assert closed.read_text() == "closed"


def test_keys_reach_every_screen_and_back() -> None:
    with start("live") as program:
        program.wait_for("Findings")
        program.press("enter")
        program.wait_for("Wrong if")
        program.press("escape")
        program.wait_for("BOTTLENECK")
        program.press("?")
        program.wait_for("Keys")
        program.press("escape")
        program.wait_for("BOTTLENECK")
        program.press("p")
        program.wait_for("PAUSED")
        program.press("ctrl+c")
        assert program.wait() == 0


def test_the_screen_follows_the_size_of_the_terminal() -> None:
    with start("live", size=(120, 40)) as program:
        program.wait_for("high confidence")
        program.resize(50, 12)
        program.wait_for("bottletop needs 60x15")
        program.resize(80, 24)
        program.wait_for("Findings")
        program.press("q")
        assert program.wait() == 0


def test_the_picker_on_its_own_returns_the_process() -> None:
    with start("pick") as program:
        program.wait_for("2 of 2")
        program.wait_for("vllm [/b]")
        program.press("42")
        program.wait_for("1 of 2")
        program.press("enter")
        assert program.wait() == 0
        assert "picked 42" in program.raw.decode(errors="replace")
        assert program.is_restored()


def test_output_of_a_command_is_shown_without_its_escapes(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_bytes(b"loading\x1b[31m red\n 10 %\r 100 %\nhalf a line")
    with start("log", str(log)) as program:
        screen = program.wait_for("half a line")
        assert "loading [31m red" in screen
        assert "100 %" in screen
        program.press("l")
        program.wait_for(lambda text: "half a line" not in text)
        program.press("q")
        assert program.wait() == 0


def test_no_color_means_no_colour_codes() -> None:
    with start("live", NO_COLOR="1") as program:
        program.wait_for("Findings")
        program.press("q")
        program.wait()
        coloured = [code for code in (b"[38;", b"[48;", b"[31m", b"[33m") if code in program.raw]
        assert coloured == []


def test_the_linux_console_gets_only_characters_of_its_font() -> None:
    with start("live", TERM="linux", COLORTERM="") as program:
        program.wait_for("Findings")
        program.press("enter")
        program.wait_for("Wrong if")
        program.press("q")
        program.wait()
        odd = {char for char in program.raw.decode() if not _in_cp437(char)}
        assert odd == set()


def test_a_terminal_that_is_not_utf8_gets_ascii() -> None:
    with start("live", PYTHONIOENCODING="latin-1", PYTHONUTF8="0") as program:
        program.wait_for("Findings")
        program.press("q")
        program.wait()
        assert program.raw.isascii()


def test_no_screen_without_a_terminal() -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "live"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent / "src")])},
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "standard input is not a terminal" in done.stderr


def _in_cp437(char: str) -> bool:
    try:
        char.encode("cp437")
    except UnicodeEncodeError:
        return False
    return True
