"""Frames reach the terminal whole, and everything else as it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual._ansi_sequences import SYNC_END, SYNC_START
from textual.drivers.headless_driver import HeadlessDriver
from textual.drivers.linux_driver import LinuxDriver

from bottletop.tui import compat

if TYPE_CHECKING:
    import pytest


def test_a_frame_is_one_write_and_what_is_outside_of_frames_is_not_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[str] = []
    monkeypatch.setattr(LinuxDriver, "write", lambda _, data: written.append(data))
    driver = object.__new__(compat.FrameDriver)
    for data in ("title", SYNC_START, "lines", "cursor", SYNC_END, "bell", SYNC_START, SYNC_END):
        driver.write(data)
    frame = f"{SYNC_START}linescursor{SYNC_END}"
    assert written == ["title", frame, "bell", f"{SYNC_START}{SYNC_END}"]


def test_only_the_driver_of_a_terminal_is_replaced() -> None:
    assert compat.whole_frames(LinuxDriver) is compat.FrameDriver
    assert compat.whole_frames(HeadlessDriver) is HeadlessDriver
