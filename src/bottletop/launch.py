"""Starts a command with the stage probe at hand, detached from our terminal.

The command gets a session of its own: Ctrl-C and a dropped line never reach it, and it is never
signalled from here. Whoever started it may quit; it goes on.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bottletop.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

BOOT_DIR = Path(__file__).resolve().parent / "probe_boot"
LOG_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOCTTY | os.O_NOFOLLOW


class CannotLaunch(Exception):
    """The command could not be started; the message is one line that says why."""


class Launched:
    """A command that was started. Dropping this object leaves the command alone."""

    def __init__(self, process: subprocess.Popen[bytes], log_path: Path) -> None:
        self.pid = process.pid
        self.log_path = log_path
        self._process = _Detached(process)

    def ended(self) -> bool:
        """True once the command has ended."""
        return self._process.poll() is not None

    def exit_code(self) -> int | None:
        """What a shell would report: 128 and the signal's number after a signal; None: it runs."""
        code = self._process.poll()
        return None if code is None else _as_shell(code)

    def wait(self, timeout_s: float | None = None) -> int:
        """Wait for its end and return the exit code. Raises TimeoutError; it then runs on."""
        try:
            return _as_shell(self._process.wait(timeout_s))
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"pid {self.pid} still runs after {timeout_s:g} s") from None


class _Detached:
    """A child that may outlive us: `Popen` warns when it is dropped while its process runs."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.poll = process.poll
        self.wait = process.wait

    def __del__(self) -> None:
        if self._process.returncode is None:
            self._process.returncode = 0


def launch(
    command: Sequence[str],
    *,
    log_path: str | PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | PathLike[str] | None = None,
) -> Launched:
    """Start `command` with the probe on its PYTHONPATH. Raises `CannotLaunch`.

    Its standard output and error go to `log_path`, appended, for the user alone; without one a
    file is named in the current folder, or in the temporary one where that cannot be written.
    Its standard input is ours, unless that is a terminal: then it is empty.
    """
    if not command:
        raise CannotLaunch("no command")
    path, log = _open_log(log_path, command[0])
    try:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL if _stdin_is_ours() else None,
            stdout=log,
            stderr=log,
            env=with_probe(os.environ if env is None else env),
            cwd=cwd,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        if log_path is None:
            path.unlink(missing_ok=True)
        raise CannotLaunch(_why(command[0], cwd, error)) from None
    finally:
        os.close(log)
    return Launched(process, path)


def with_probe(env: Mapping[str, str]) -> dict[str, str]:
    """`env` with the probe's folder in front of PYTHONPATH, for it and all that it starts."""
    rest = env.get("PYTHONPATH")
    parts = [str(BOOT_DIR)] if not rest else [str(BOOT_DIR), rest]
    return {**env, "PYTHONPATH": os.pathsep.join(parts)}


def _stdin_is_ours() -> bool:
    """True for a terminal, which the dashboard reads, and where there is no input at all."""
    try:
        return os.isatty(0)
    except OSError:
        return True


def _open_log(wanted: str | PathLike[str] | None, program: str) -> tuple[Path, int]:
    if wanted is not None:
        path = Path(wanted)
        try:
            return path, os.open(path, LOG_FLAGS, 0o600)
        except OSError as error:
            why = f"cannot write {clean(str(path))}: {error.strerror}"
            raise CannotLaunch(why) from None
    safe = re.sub(r"[^\w.-]+", "-", os.path.basename(program)).strip("-.")[:40] or "command"
    name = f"{safe}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    refused = ""
    for folder in (Path.cwd(), Path(tempfile.gettempdir())):
        try:
            return folder / name, os.open(folder / name, LOG_FLAGS | os.O_EXCL, 0o600)
        except OSError as error:
            refused = f"cannot write a log in {folder}: {error.strerror}"
    raise CannotLaunch(refused)


def _why(program: str, cwd: str | PathLike[str] | None, error: OSError | ValueError) -> str:
    name = clean(program, 200)
    if isinstance(error, ValueError):
        return f"cannot start {name}: {error}"
    if (
        cwd is not None
        and error.filename is not None
        and os.fspath(error.filename) == os.fspath(cwd)
    ):
        return f"cannot work in {clean(os.fspath(cwd), 200)}: {error.strerror}"
    if isinstance(error, FileNotFoundError):
        # The kernel says the same of a script whose interpreter is missing.
        missing = os.path.exists(program) and os.path.sep in program
        return f"no interpreter for {name}" if missing else f"no such command: {name}"
    if isinstance(error, PermissionError):
        return f"not executable: {name}"
    return f"cannot start {name}: {error.strerror}"


def _as_shell(code: int) -> int:
    return 128 - code if code < 0 else code
