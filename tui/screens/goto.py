"""Ask for a moment of the recording."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import TYPE_CHECKING

from textual.screen import ModalScreen
from textual.widgets import Input

from bottletop.model import NS_PER_S
from bottletop.tui import bindings

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from bottletop.model import Anchor
    from bottletop.snapshot import Playback
    from bottletop.tui.reading import Reading

_PARTS = re.compile(r"(?:(\d+):)?(\d{1,2}):(\d{1,2}(?:\.\d+)?)")

_NUMBER = re.compile(r"[+-]?\d{1,9}(\.\d{1,9})? ?s?")


def parse(text: str, playback: Playback, anchor: Anchor) -> int:
    """A moment in monotonic ns: `14:32:07` of the recorded day, `2:10` or `90` from the start,
    `+30` or `-30` from here, `50%` of the way. Raises ValueError with one line."""
    text = text.strip()
    length_ns = playback.end_ns - playback.start_ns
    if text.endswith("%"):
        return playback.start_ns + round(_number(text[:-1]) / 100 * length_ns)
    if text[:1] in ("+", "-"):
        return playback.now_ns + round(_number(text) * NS_PER_S)
    match = _PARTS.fullmatch(text)
    if match is None:
        return playback.start_ns + round(_number(text) * NS_PER_S)
    hours, minutes, seconds = match.groups()
    if hours is None:
        since_start_s = int(minutes) * 60 + float(seconds)
        return playback.start_ns + round(since_start_s * NS_PER_S)
    return _of_the_day(int(hours), int(minutes), float(seconds), playback, anchor)


def _number(text: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is not a time: 14:32:07, 2:10, 90, +30, -30 or 50%")
    return float(text.rstrip(" s"))


def _of_the_day(
    hours: int, minutes: int, seconds: float, playback: Playback, anchor: Anchor
) -> int:
    """The first moment with that wall time at or after the start of the recording."""
    if hours > 23 or minutes > 59 or seconds >= 60:
        raise ValueError(f"{hours}:{minutes:02d}:{seconds:02.0f} is not a time of day")
    start_s = anchor.wall_at(playback.start_ns) / NS_PER_S
    local = time.localtime(start_s)
    day = datetime(local.tm_year, local.tm_mon, local.tm_mday, hours, minutes)
    wall_s = day.timestamp() + seconds
    if wall_s < start_s - 1:
        wall_s += 86_400
    return playback.start_ns + round((wall_s - start_s) * NS_PER_S)


class GotoScreen(ModalScreen[str]):
    """Dismisses with what was typed, empty when nothing."""

    BINDINGS = [bindings.key("escape", "leave", "Back", "Stay here.", id="goto.back")]

    def __init__(self) -> None:
        super().__init__(id="goto")
        self._input = Input(placeholder="14:32:07   2:10   +30   50%", compact=True, id="goto-time")
        self._input.border_title = "Go to"

    def compose(self) -> ComposeResult:
        yield self._input

    def on_mount(self) -> None:
        self._input.focus()

    def show(self, reading: Reading) -> None:
        """Readings do not change the question."""

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(event.value)

    def action_leave(self) -> None:
        self.dismiss("")
