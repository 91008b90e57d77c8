"""The disk program refuses to pretend: where reads do not wait for a disk, it says so."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from bottletop.demo.disk import (
    BLOCK_BYTES,
    MOST_BATCH_BYTES,
    CannotStarve,
    DataFile,
    Speed,
    batch_bytes,
    file_system_of,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_the_batch_takes_about_the_asked_time_in_whole_blocks() -> None:
    size = batch_bytes(Speed(900e6, 0.1), read_s=0.7)
    assert size % BLOCK_BYTES == 0
    assert size == pytest.approx(900e6 * 0.7, abs=BLOCK_BYTES)


def test_a_slow_disk_still_reads_one_block() -> None:
    assert batch_bytes(Speed(1e6, 0.01), read_s=0.7) == BLOCK_BYTES


def test_a_disk_that_is_too_fast_is_refused() -> None:
    with pytest.raises(CannotStarve, match="too fast"):
        batch_bytes(Speed(2 * MOST_BATCH_BYTES, 0.2), read_s=0.7)


def test_reads_that_cost_cpu_are_refused_as_memory() -> None:
    with pytest.raises(CannotStarve, match="from memory"):
        batch_bytes(Speed(5e9, 0.9), read_s=0.7)


@pytest.mark.parametrize("kind", ["tmpfs", "ramfs"])
def test_memory_file_systems_are_refused_before_anything_is_written(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bottletop.demo.disk.file_system_of", lambda folder: kind)
    with pytest.raises(CannotStarve, match=f"is on {kind}"):
        DataFile(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_too_little_room_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bottletop.demo.disk.file_system_of", lambda folder: "ext4")
    monkeypatch.setattr("bottletop.demo.disk.SPARE_BYTES", 1 << 62)
    with pytest.raises(CannotStarve, match="MiB free"):
        DataFile(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_is_refused_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("bottletop.demo.disk.file_system_of", lambda folder: "ext4")
    monkeypatch.setattr(os, "write", no_space)
    with pytest.raises(CannotStarve, match="No space left"):
        DataFile(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_the_file_system_is_found_by_device_number(tmp_path: Path) -> None:
    device = os.stat(tmp_path).st_dev
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(
        "21 1 0:1 / /other rw - proc proc rw\n"
        f"22 1 {os.major(device)}:{os.minor(device)} / / rw shared:1 - xfs /dev/sda rw\n"
    )
    assert file_system_of(str(tmp_path), str(mountinfo)) == "xfs"
    assert file_system_of(str(tmp_path), str(tmp_path / "absent")) == "unknown"
