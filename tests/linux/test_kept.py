"""Descriptors that stay open give the present content, and never that of another process."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from bottletop.linux.kept import KeptFiles, descriptor_allowance

if TYPE_CHECKING:
    from pathlib import Path


def test_each_read_sees_what_the_file_holds_now(tmp_path: Path) -> None:
    file = tmp_path / "schedstat"
    files = KeptFiles(4)
    for content in (b"1 2 3\n", b"10 20 30\n", b"4\n"):
        file.write_bytes(content)
        assert files.read(str(file)) == content
    assert len(files) == 1
    files.close()


def test_beyond_the_allowance_files_are_read_without_being_kept(tmp_path: Path) -> None:
    files = KeptFiles(1)
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
        assert files.read(str(tmp_path / name)) == name.encode()
    assert len(files) == 1
    files.close()
    assert len(files) == 0


def test_a_descriptor_of_an_ended_process_fails_and_is_let_go() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    path = f"/proc/{child.pid}/schedstat"
    files = KeptFiles(4)
    try:
        assert len(files.read(path).split()) == 3
    finally:
        child.communicate(b"\n")
    with pytest.raises(OSError):
        files.read(path)
    assert len(files) == 0


def test_a_live_counter_read_twice_moves(tmp_path: Path) -> None:
    files = KeptFiles(4)
    path = f"/proc/{os.getpid()}/stat"
    first = files.read(path)
    sum(range(2_000_000))
    ticks = [int(raw.rpartition(b")")[2].split()[11]) for raw in (first, files.read(path))]
    files.close()
    assert ticks[1] >= ticks[0] > 0


def test_the_allowance_leaves_descriptors_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    assert descriptor_allowance(4096) == 768
    assert descriptor_allowance(100) == 100
    monkeypatch.setattr(resource, "getrlimit", lambda _: (200, 4096))
    assert descriptor_allowance(4096) == 0
