"""The real program on a terminal: attach, look, record, drop the line, replay what is left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pty_harness import PtyProgram

from bottletop.session.reader import open_recording

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
STAGED = (
    "import time\n"
    "from bottletop.probe import stage\n"
    "while True:\n"
    "    with stage('preprocess'): sum(range(200000))\n"
    "    with stage('forward'): time.sleep(0.02)\n"
)


@pytest.fixture
def staged_process() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(
        [sys.executable, "-c", STAGED], env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin"}
    )
    yield child
    child.kill()
    child.wait()


def bottletop(home: Path, *arguments: str, size: tuple[int, int] = (120, 40)) -> PtyProgram:
    return PtyProgram(
        [sys.executable, "-m", "bottletop", *arguments],
        size=size,
        cwd=home,
        env={"PYTHONPATH": str(ROOT / "src"), "HOME": str(home)},
    )


def test_attach_shows_the_stages_and_a_dropped_line_leaves_a_readable_recording(
    tmp_path: Path, staged_process: subprocess.Popen[bytes]
) -> None:
    with bottletop(tmp_path, "attach", str(staged_process.pid)) as program:
        program.wait_for("preprocess")
        assert "no NVIDIA driver" in program.wait_for("no GPU readings")
        program.press("R")
        program.wait_for("REC")
        program.wait_for(lambda screen: bool(list(tmp_path.glob("*.btrec"))))
        program.hang_up()
        assert program.wait() == 129
    (path,) = tmp_path.glob("*.btrec")
    recording = open_recording(str(path))
    assert recording.ended_cleanly
    assert recording.end_ns > recording.start_ns
    assert staged_process.poll() is None
    with bottletop(tmp_path, "replay", str(path), size=(80, 24)) as program:
        program.wait_for("REPLAY")
        program.wait_for("preprocess")
        program.press("q")
        assert program.wait() == 0
        assert program.is_restored()


def test_the_screen_follows_a_target_that_ends(
    tmp_path: Path, staged_process: subprocess.Popen[bytes]
) -> None:
    with bottletop(tmp_path, "attach", str(staged_process.pid), size=(80, 24)) as program:
        program.wait_for("preprocess")
        staged_process.kill()
        staged_process.wait()
        program.wait_for("ended")
        program.press("q")
        assert program.wait() == 0
        assert program.is_restored()


def test_run_detaches_and_the_command_goes_on(tmp_path: Path) -> None:
    pid_file, end = tmp_path / "pid", tmp_path / "end"
    program_text = (
        "import os, pathlib, time\n"
        f"pathlib.Path({str(pid_file)!r}).write_text(str(os.getpid()))\n"
        f"while not os.path.exists({str(end)!r}): time.sleep(0.02)\n"
        f"pathlib.Path({str(pid_file)!r}).write_text('done')\n"
    )
    with bottletop(tmp_path, "run", "--", sys.executable, "-c", program_text) as program:
        program.wait_for("Output")
        program.wait_for(lambda screen: pid_file.exists())
        program.press("q")
        assert program.wait() == 0
    assert Path(f"/proc/{pid_file.read_text()}").exists()
    end.touch()
    with bottletop(tmp_path, "report", "--for", "1s") as program:
        program.wait_for(lambda screen: pid_file.read_text() == "done")
        assert program.wait() in (0, 1)


def test_attaching_by_a_name_with_several_matches_asks_which(tmp_path: Path) -> None:
    name = "several-of-these.py"
    script = tmp_path / name
    script.write_text("input()\n")
    children = [
        subprocess.Popen([sys.executable, str(script)], stdin=subprocess.PIPE) for _ in range(2)
    ]
    try:
        with bottletop(tmp_path, "attach", name) as program:
            program.wait_for(str(children[0].pid))
            assert str(children[1].pid) in program.text
            program.press("enter")
            program.wait_for("Findings")
            program.press("q")
            assert program.wait() == 0
            assert program.is_restored()
    finally:
        for child in children:
            child.communicate(b"\n")
