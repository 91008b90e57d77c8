"""Runs a piece of a test without root's rights, so that it is the kernel that refuses."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import traceback
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NOBODY = 65534

_CLOSED = """
import ctypes, sys
# PR_SET_DUMPABLE 0: closed even to processes of the same user, as a setuid program would be.
assert ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) == 0
print("ready", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def closed_process() -> Iterator[int]:
    """A live process whose files of /proc nobody without CAP_SYS_PTRACE may read; gives its pid."""
    child = subprocess.Popen(
        [sys.executable, "-c", _CLOSED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield child.pid
    finally:
        child.communicate()


def unprivileged(work: Callable[[], Any]) -> Any:
    """Call `work` in a forked child, as nobody where we are root, and return what it returned.

    The result travels as JSON. What `work` imports must have been imported before: an interpreter
    under /root cannot be read by nobody.
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Threads of the test runner stay behind in the parent; the child runs `work` and ends.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        _in_child(work, writing)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    result = json.loads(text)
    assert "error" not in result, result["error"]
    return result["value"]


def _in_child(work: Callable[[], Any], writing: int) -> None:
    try:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
        result = {"value": work()}
    except BaseException:
        result = {"error": traceback.format_exc()}
    os.write(writing, json.dumps(result).encode())
    os._exit(0)
