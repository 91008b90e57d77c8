"""The whole program on a process that it did not start: record, be killed, judge what is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
WORDS = "import hashlib\nwhile True: hashlib.sha256(bytes(200000)).digest()"


def environment(home: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(ROOT / "src")}


def bottletop(home: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bottletop", *arguments],
        cwd=home,
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until(condition: object, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


@pytest.fixture
def busy_process(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", WORDS], cwd=tmp_path)
    yield child
    child.kill()
    child.wait()


def judged(home: Path, recording: Path) -> dict[str, object]:
    done = bottletop(home, "report", str(recording), "--json")
    out, err = done.communicate(timeout=60)
    assert done.returncode in (0, 1), err
    document = json.loads(out)
    assert isinstance(document, dict)
    return document


def test_a_recording_survives_kill_9_and_is_judged(
    tmp_path: Path, busy_process: subprocess.Popen[bytes]
) -> None:
    path = tmp_path / "killed.btrec"
    recorder = bottletop(tmp_path, "record", "--pid", str(busy_process.pid), "-o", str(path))
    wait_until(path.exists)
    time.sleep(
        3.3
    )  # real seconds of a real recording: there is no clock to step in another process
    recorder.send_signal(signal.SIGKILL)
    recorder.communicate()
    document = judged(tmp_path, path)
    assert document["watched_s"] >= 2
    assert document["target"]["pid"] == busy_process.pid  # type: ignore[index]


def test_sigterm_closes_the_recording_as_one_file(
    tmp_path: Path, busy_process: subprocess.Popen[bytes]
) -> None:
    path = tmp_path / "ended.btrec"
    recorder = bottletop(tmp_path, "record", "--pid", str(busy_process.pid), "-o", str(path))
    wait_until(path.exists)
    wait_until(lambda: path.stat().st_size > 4096 or Path(f"{path}-wal").exists())
    recorder.terminate()
    out, err = recorder.communicate(timeout=10)
    assert recorder.returncode in (0, 1), err
    assert "recorded" in out
    assert [item.name for item in tmp_path.glob("ended.btrec*")] == ["ended.btrec"]
    assert path.stat().st_mode & 0o077 == 0
    assert judged(tmp_path, path)["schema"] == 1


@pytest.mark.parametrize(("blocks", "left"), [(1, "no file left"), (80, "can be replayed")])
def test_a_full_disk_ends_a_headless_recording_and_is_an_error(
    blocks: int, left: str, tmp_path: Path
) -> None:
    """A limit on the size of files stands in for the full disk: writes fail alike."""
    record = f"'{sys.executable}' -m bottletop record --for 60s -o full.btrec"
    recorder = subprocess.run(
        ["/bin/bash", "-c", f"ulimit -f {blocks}; exec {record}"],
        cwd=tmp_path,
        # Without bytecode: the limit would cut what the imports leave behind for everyone.
        env={**environment(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert recorder.returncode == 3
    assert "VERDICT" in recorder.stdout
    assert "recorded" not in recorder.stdout
    (line,) = recorder.stderr.splitlines()
    assert line.startswith("bottletop: full.btrec: recording stopped: ")
    assert line.endswith(left)
    assert (tmp_path / "full.btrec").exists() == (blocks > 1)


def test_a_dropped_line_does_not_end_a_headless_recording(
    tmp_path: Path, busy_process: subprocess.Popen[bytes]
) -> None:
    path = tmp_path / "line.btrec"
    recorder = bottletop(
        tmp_path, "record", "--pid", str(busy_process.pid), "--for", "4s", "-o", str(path), "--json"
    )
    wait_until(path.exists)
    recorder.send_signal(signal.SIGHUP)
    out, err = recorder.communicate(timeout=30)
    assert recorder.returncode in (0, 1), err
    assert json.loads(out)["watched_s"] >= 3.9


def test_a_target_that_ends_ends_the_watch(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    watcher = bottletop(tmp_path, "report", "--pid", str(child.pid), "--for", "60s")
    try:
        time.sleep(1.5)  # let the watch begin
        child.communicate(b"\n", timeout=10)
        out, err = watcher.communicate(timeout=20)
    finally:
        child.kill()
        watcher.kill()
    assert watcher.returncode in (0, 1), err
    assert "which has ended" in out


def test_run_without_a_screen_reports_and_passes_the_exit_code_on(tmp_path: Path) -> None:
    program = (
        "import time\n"
        "from bottletop.probe import stage\n"
        "for _ in range(30):\n"
        "    with stage('preprocess'): time.sleep(0.05)\n"
        "    with stage('forward'): time.sleep(0.02)\n"
        "print('its own words', flush=True)\n"
        "raise SystemExit(7)\n"
    )
    log = tmp_path / "out.log"
    done = bottletop(
        tmp_path,
        "run",
        "--no-tui",
        "--json",
        "--log",
        str(log),
        "--",
        sys.executable,
        "-c",
        program,
    )
    out, err = done.communicate(timeout=60)
    assert done.returncode == 7, err
    stages = {stage["name"]: stage for stage in json.loads(out)["stages"]}
    assert set(stages) == {"preprocess", "forward"}
    assert stages["preprocess"]["mean_s"] == pytest.approx(0.05, rel=0.5)
    assert log.read_text() == "its own words\n"


@pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("exit 0", 0)])
def test_a_command_that_ends_at_once_still_passes_its_exit_code_on(
    script: str, code: int, tmp_path: Path
) -> None:
    log = str(tmp_path / "out.log")
    done = bottletop(tmp_path, "run", "--no-tui", "--log", log, "--", "/bin/sh", "-c", script)
    out, err = done.communicate(timeout=60)
    assert done.returncode == code, err
    assert "which has ended" in out


def test_a_command_is_left_running_and_named_when_we_are_stopped(tmp_path: Path) -> None:
    log = str(tmp_path / "out.log")
    watcher = bottletop(tmp_path, "run", "--no-tui", "--log", log, "--", "sleep", "60")
    assert watcher.stderr is not None
    pid = int(watcher.stderr.readline().partition("pid ")[2].split()[0])
    try:
        time.sleep(1.5)
        watcher.send_signal(signal.SIGINT)
        _, err = watcher.communicate(timeout=30)
        assert watcher.returncode == 0, err
        assert f"pid {pid} goes on running" in err
        os.kill(pid, 0)
    finally:
        os.kill(pid, signal.SIGKILL)


def test_the_target_goes_on_when_we_are_killed(
    tmp_path: Path, busy_process: subprocess.Popen[bytes]
) -> None:
    watcher = bottletop(tmp_path, "report", "--pid", str(busy_process.pid), "--for", "60s")
    time.sleep(1.5)
    watcher.kill()
    watcher.communicate()
    stat = Path(f"/proc/{busy_process.pid}/stat").read_text().rpartition(")")[2].split()
    assert stat[0] in "RS"
    assert busy_process.poll() is None
