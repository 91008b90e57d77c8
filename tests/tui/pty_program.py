"""A program for the pty tests: the real dashboard on a made-up host that moves with the clock.

Usage: pty_program.py MODE [FILE]. MODE is `live`, `recording` (FILE is written when the recording
is closed), `stuck` (a call in another thread never returns), `replay`, `pick`, or `log` (FILE is
the log to show).
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from bottletop.lifecycle import no_terminal_reason
from bottletop.model import ProcessId
from bottletop.snapshot import RecordingStatus, Snapshot
from bottletop.tui.app import pick_process, run_dashboard
from tui.synthetic import Host, LiveHost, RecordedHost, Shape


class MovingHost(LiveHost):
    """One made-up second each real one."""

    def __init__(self, path: str = "") -> None:
        super().__init__(Host(Shape()).run(100))
        self._path = path
        self._due_s = time.monotonic() + 1
        if path:
            self.recording = RecordingStatus(path, 0, 1 << 20, 0)

    def snapshot(self) -> Snapshot:
        if time.monotonic() >= self._due_s:
            self._due_s += 1
            self.host.run(1)
        return super().snapshot()

    def stop_recording(self) -> str:
        if self._path:
            # Whole or not at all: a slow exit closes a second time as its last words.
            part = Path(f"{self._path}.part")
            part.write_text("closed")
            part.replace(self._path)
        return super().stop_recording()


@dataclass(frozen=True)
class Candidate:
    """What the picker needs of a process."""

    pid: int
    name: str
    user: str = "ml"
    cpu_s: float = 12.5
    age_s: float | None = 3600
    threads: int = 8

    @property
    def command(self) -> str:
        return f"{self.name} serve"

    @property
    def id(self) -> ProcessId:
        return ProcessId(self.pid, 7)


def main(mode: str, path: str = "") -> int:
    reason = no_terminal_reason()
    if reason:
        sys.stderr.write(f"no screen: {reason}\n")
        return 2
    if mode == "replay":
        return run_dashboard(RecordedHost(), mode="replay")
    if mode == "pick":
        picked = pick_process([Candidate(41, "vllm"), Candidate(42, "vllm [/b]\U0001f600")])
        print("picked", picked.pid if picked else None)
        return 0
    if mode == "stuck":
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    if mode == "log":
        return run_dashboard(MovingHost(), log_path=path)
    return run_dashboard(MovingHost(path if mode == "recording" else ""))


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
