"""Starting a command: with the probe, in a session of its own, and never signalled from here."""

from __future__ import annotations

import gc
import os
import signal
import stat
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from bottletop.launch import BOOT_DIR, CannotLaunch, Launched, launch, with_probe

WITHIN_S = 30.0


def run(tmp_path: Path, *command: str, **options: object) -> tuple[int, str]:
    """Exit code and output of a command that ends."""
    launched = launch(command, log_path=tmp_path / "out.log", **options)  # type: ignore[arg-type]
    return launched.wait(WITHIN_S), launched.log_path.read_text()


def test_output_goes_to_a_log_for_the_user_alone(tmp_path: Path) -> None:
    code, text = run(tmp_path, "sh", "-c", "echo out; echo err >&2")
    assert (code, text) == (0, "out\nerr\n")
    assert stat.S_IMODE((tmp_path / "out.log").stat().st_mode) == 0o600


def test_a_log_that_exists_is_continued(tmp_path: Path) -> None:
    (tmp_path / "out.log").write_text("before\n")
    assert run(tmp_path, "echo", "after") == (0, "before\nafter\n")


def test_a_link_is_not_followed_to_write_a_log(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "out.log").symlink_to(tmp_path / "precious")
    with pytest.raises(CannotLaunch, match="cannot write"):
        launch(["echo", "x"], log_path=tmp_path / "out.log")
    assert (tmp_path / "precious").read_text() == "mine"


def test_without_a_name_the_log_is_named_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    launched = launch(["/bin/echo", "x"])
    assert launched.wait(WITHIN_S) == 0
    assert launched.log_path.parent == tmp_path
    assert launched.log_path.name.startswith("echo-")
    assert launched.log_path.read_text() == "x\n"


def test_a_folder_that_cannot_be_written_gives_way_to_the_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(Path, "cwd", lambda: gone / "no such folder")
    launched = launch(["/bin/echo", "x"])
    assert launched.wait(WITHIN_S) == 0
    assert launched.log_path.parent == tmp_path


def test_the_probe_can_be_imported_and_the_users_path_stays(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "my_module.py").write_text("here = 1\n")
    code = "import my_module; from bottletop.probe import stage; print(my_module.here, stage)"
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(mine)}
    done, text = run(tmp_path, sys.executable, "-c", code, env=env)
    assert done == 0
    assert text.startswith("1 <function stage")
    assert with_probe({})["PYTHONPATH"] == str(BOOT_DIR)
    assert with_probe({"PYTHONPATH": ""})["PYTHONPATH"] == str(BOOT_DIR)


def test_the_command_works_where_it_is_told_to(tmp_path: Path) -> None:
    assert run(tmp_path, "pwd", cwd=tmp_path) == (0, f"{tmp_path}\n")


@pytest.mark.parametrize(
    ("script", "code"), [("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137)]
)
def test_exit_codes_are_those_of_a_shell(tmp_path: Path, script: str, code: int) -> None:
    launched = launch(["sh", "-c", script], log_path=tmp_path / "out.log")
    assert launched.wait(WITHIN_S) == code
    assert launched.ended()
    assert launched.exit_code() == code


def test_while_it_runs_there_is_no_exit_code(tmp_path: Path) -> None:
    launched = launch(["sleep", "60"], log_path=tmp_path / "out.log")
    try:
        assert not launched.ended()
        assert launched.exit_code() is None
        with pytest.raises(TimeoutError, match=f"pid {launched.pid} still runs"):
            launched.wait(0.01)
    finally:
        os.kill(launched.pid, signal.SIGKILL)
        launched.wait(WITHIN_S)


@pytest.mark.parametrize(
    ("name", "content", "mode", "message"),
    [
        (None, "", 0, "no such command: ./program"),
        ("program", "#!/bin/sh\n", 0o644, "not executable: ./program"),
        ("program", "#!/no/such/interpreter\n", 0o755, "no interpreter for ./program"),
        ("program", "\x7fELF rubbish", 0o755, "cannot start ./program: Exec format error"),
    ],
    ids=["missing", "not-executable", "no-interpreter", "not-a-program"],
)
def test_what_cannot_be_started_is_said_in_one_line_and_leaves_no_log(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str | None,
    content: str,
    mode: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    if name is not None:
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(mode)
    with pytest.raises(CannotLaunch) as caught:
        launch(["./program"])
    assert str(caught.value) == message
    assert list(tmp_path.glob("*.log")) == []


def test_a_folder_that_is_missing_is_not_blamed_on_the_command(tmp_path: Path) -> None:
    with pytest.raises(CannotLaunch, match=r"cannot work in .*gone"):
        launch(["echo"], log_path=tmp_path / "out.log", cwd=tmp_path / "gone")


def test_odd_words_are_refused_in_one_clean_line(tmp_path: Path) -> None:
    for command in (["a\0b"], ["\x1b[31mred"], []):
        with pytest.raises(CannotLaunch) as caught:
            launch(command, log_path=tmp_path / "out.log")
        assert str(caught.value).isprintable()


def test_signals_of_our_terminal_do_not_reach_it(tmp_path: Path) -> None:
    # A shell of its own session stands for ours; Ctrl-C and a hang-up go to its process group.
    script = (
        "import sys, time\n"
        "from bottletop.launch import launch\n"
        "child = launch(['sleep', '60'], log_path=sys.argv[1])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    root = Path(__file__).resolve().parent.parent
    ours = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "out.log")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(root / "src")},
    )
    assert ours.stdout is not None
    with ours, ours.stdout:
        child = int(ours.stdout.readline())
        try:
            assert os.getsid(child) == child != os.getsid(ours.pid)
            os.killpg(ours.pid, signal.SIGINT)
            ours.wait(WITHIN_S)
            os.kill(child, 0)
            assert b"sleep" in Path(f"/proc/{child}/cmdline").read_bytes()
        finally:
            os.kill(child, signal.SIGKILL)


def test_dropping_it_leaves_the_command_alone_and_warns_of_nothing(tmp_path: Path) -> None:
    def start() -> int:
        return launch(["sleep", "60"], log_path=tmp_path / "out.log").pid

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pid = start()
        gc.collect()
    assert caught == []
    assert not _is_over(pid)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_it_reads_our_input_but_never_our_terminal(tmp_path: Path) -> None:
    def cat_with(stdin: int) -> str:
        saved = os.dup(0)
        os.dup2(stdin, 0)
        try:
            launched: Launched = launch(["cat"], log_path=tmp_path / "out.log")
            assert launched.wait(WITHIN_S) == 0
        finally:
            os.dup2(saved, 0)
            os.close(saved)
        return launched.log_path.read_text()

    reading, writing = os.pipe()
    os.write(writing, b"piped\n")
    os.close(writing)
    assert cat_with(reading) == "piped\n"
    os.close(reading)
    master, terminal = os.openpty()
    os.write(master, b"typed\n")
    assert cat_with(terminal) == "piped\n"
    os.close(master)
    os.close(terminal)


def _is_over(pid: int) -> bool:
    deadline_s = time.monotonic() + 0.2
    while time.monotonic() < deadline_s:
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
            return True
    return False
