"""The first line: where and when, how loaded, what is not well, and the badges."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bottletop.model import NS_PER_S
from bottletop.tui.lines import Line, Span, ranked, spread, width_of
from bottletop.tui.widgets.panel import Panel
from bottletop.units import MISSING, age_text, bytes_text, percent_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.tui.glyphs import Glyphs
    from bottletop.tui.reading import Reading

GIB = 1 << 30


class HostPanel(Panel):
    """Host line. Knows the age of a picture that is not of now."""

    paused_s: float | None = None
    """Since when the picture was frozen by the user; None while it is live."""
    silent_s: float | None = None
    """Since when a live feed has brought nothing new; None while it does."""

    def draw(self, reading: Reading, width: int, height: int) -> Sequence[Line]:
        del height
        return [draw(reading, width, self.glyphs, self.paused_s, self.silent_s)]


def draw(
    reading: Reading,
    width: int,
    glyphs: Glyphs,
    paused_s: float | None = None,
    silent_s: float | None = None,
) -> Line:
    """Draw the host line; facts of least weight go first where it is narrow."""
    badges = _badges(reading, glyphs, paused_s, silent_s)
    room = width - width_of(badges) - 2
    facts: list[tuple[int, Sequence[Span]]] = [
        (0, [(reading.host or "this host", "strong")]),
        (1, [(_clock(reading), "text")]),
        (2, _cpu(reading)),
        (3, _memory(reading)),
        (5, _pressure(reading)),
        (1, _ailing(reading)),
        (6, _own(reading)),
    ]
    shown = [(rank, spans) for rank, spans in facts if spans]
    gap = f"  {glyphs.dot}  " if width >= 120 else f" {glyphs.dot} "
    left: list[Span] = [(" ", "text"), *ranked(room, shown, gap)]
    return spread(width, left, badges)


def _clock(reading: Reading) -> str:
    return time.strftime("%H:%M:%S", time.localtime(reading.wall_ns / NS_PER_S))


def _cpu(reading: Reading) -> list[Span]:
    busy = reading.cpu.busy
    shown = f"{busy:.1f}" if busy is not None else MISSING
    total = f"/{len(reading.cores)} cores" if reading.cores else ""
    return [("CPU ", "dim"), (shown, "text"), (total, "dim")]


def _memory(reading: Reading) -> list[Span]:
    if reading.mem_used_bytes is None or reading.mem_total_bytes is None:
        return [("mem ", "dim"), (MISSING, "text")]
    used, total = reading.mem_used_bytes / GIB, reading.mem_total_bytes / GIB
    return [("mem ", "dim"), (f"{used:.0f}", "text"), (f"/{total:.0f} GiB", "dim")]


def _pressure(reading: Reading) -> list[Span]:
    spans: list[Span] = []
    for resource, share in reading.pressure.items():
        if share >= 0.01:
            spans += [(f" {resource} ", "dim"), (percent_text(share), "text")]
    return [("stalled", "dim"), *spans] if spans else []


def _ailing(reading: Reading) -> list[Span]:
    ailing = reading.ailing
    if not ailing:
        return []
    if len(ailing) == 1:
        return [(f"{ailing[0].name} {ailing[0].state.label}", "warn")]
    return [(f"{len(ailing)} sources not ok", "warn")]


def _own(reading: Reading) -> list[Span]:
    if reading.own_cpu is None:
        return []
    share = f"{reading.own_cpu / NS_PER_S * 100:.1f} %"
    memory = bytes_text(reading.own_rss_bytes) if reading.own_rss_bytes is not None else ""
    return [("self ", "dim"), (f"{share} {memory}".strip(), "dim")]


def _badges(
    reading: Reading, glyphs: Glyphs, paused_s: float | None, silent_s: float | None
) -> list[Span]:
    spans: list[Span] = []
    if reading.simulated:
        spans.append((f" {reading.simulated} ", "on-badge-advice"))
    if reading.playback is not None:
        spans.append((" REPLAY ", "on-badge"))
    if reading.recording is not None:
        status = reading.recording
        state = "FAILED" if status.stopped else bytes_text(status.size_bytes)
        if status.error and not status.stopped:
            state += f" {status.error.partition(':')[0]}"
        spans.append((f" {glyphs.recording} REC {state} ", "on-badge-crit"))
    if silent_s is not None:
        spans.append((f" NO NEW DATA {age_text(silent_s)} ", "on-badge-crit"))
    if paused_s is not None:
        spans.append((f" PAUSED {age_text(paused_s)} ", "on-badge-warn"))
    spaced: list[Span] = []
    for span in spans:
        spaced += [(" ", "text"), span]
    return spaced
