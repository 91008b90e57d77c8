"""Whole disks: how many requests, how many bytes, how long they wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bottletop.text import fit
from bottletop.tui.history import bar
from bottletop.tui.inks import SEVERITY_INKS
from bottletop.tui.lines import Line, Span, header, line
from bottletop.tui.widgets.panel import Panel
from bottletop.units import MISSING, number_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.tui.glyphs import Glyphs
    from bottletop.tui.reading import DiskPicture, Reading

NAME_WIDTH = 11
KIND_WIDTH = 14
BAR_WIDTH = 8
MB = 1e6

HEADS = (("reads/s", 8), ("writes/s", 9), ("read MB/s", 10), ("write MB/s", 11), ("await ms", 9))
TAIL = (("queue", 7), ("busy %", 7))
SHORT = (("IOPS", 8), ("MB/s", 8), ("await ms", 9))
"""Narrow: reads and writes together."""


class DiskPanel(Panel):
    """One line a disk; those that hold files of the target first."""

    def draw(self, reading: Reading, width: int, height: int) -> Sequence[Line]:
        return draw(reading, width, height, self.glyphs)


def draw(reading: Reading, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Draw the disks into `height` lines of `width` cells."""
    columns = _columns(width)
    spare = width - 4 - NAME_WIDTH - sum(size for _, size in columns)
    kind = min(KIND_WIDTH, spare) if spare >= 5 else 0
    meter = BAR_WIDTH if spare - kind >= BAR_WIDTH + 2 else 0
    heads = "".join(f"{name:>{size}}" for name, size in columns)
    trouble = reading.trouble.get("disk", "")
    facts: list[Span] = [(trouble, "warn")] if trouble and reading.disks else []
    lead = header(
        width - len(heads) - (meter + 2 if meter else 1), "Disks", facts, rule=glyphs.rule
    )
    out = [line(width, [*lead, (heads, "dim")])]
    if not reading.disks:
        return [*out, line(width, [("   no disks: ", "text"), (trouble or "none seen", "dim")])]
    room = height - 1
    shown = reading.disks if len(reading.disks) <= room else reading.disks[: max(1, room - 1)]
    out += [_row(disk, width, columns, kind, meter, glyphs) for disk in shown]
    hidden = len(reading.disks) - len(shown)
    if hidden and len(out) < height:
        out.append(line(width, [(f"   {hidden} more: press 4", "dim")]))
    return out


def _columns(width: int) -> list[tuple[str, int]]:
    full = [*HEADS, *TAIL]
    if width - 4 - NAME_WIDTH >= sum(size for _, size in full):
        return full
    return [*SHORT, *TAIL]


def _row(
    disk: DiskPicture,
    width: int,
    columns: Sequence[tuple[str, int]],
    kind: int,
    meter: int,
    glyphs: Glyphs,
) -> Line:
    mark = disk.mark
    ink = SEVERITY_INKS[mark.severity] if mark else "text"
    sign: Span = (glyphs.severity[mark.severity], ink) if mark else (" ", "text")
    shown = _values(disk)
    spans: list[Span] = [
        (" ", "text"),
        sign,
        (" ", "text"),
        (fit(disk.key, NAME_WIDTH), "strong" if disk.holds_target or mark else "text"),
    ]
    if kind:
        about = disk.kind
        if disk.holds_target:
            about = f"{disk.kind} {glyphs.dot} target" if kind >= KIND_WIDTH else "target"
        spans.append((fit(about, kind), "dim"))
    used = 3 + NAME_WIDTH + kind + sum(size for _, size in columns) + (meter + 2 if meter else 1)
    spans.append((" " * max(0, width - used), "text"))
    for head, size in columns:
        marked = mark is not None and head in ("await ms", "busy %", "queue")
        spans.append((f"{shown[head]:>{size}}", ink if marked else "text"))
    if meter:
        filled = bar(glyphs.meter, round((disk.busy or 0) * 1000), meter)
        spans += [
            (" ", "text"),
            (filled, ink if mark else "data"),
            (glyphs.track * (meter - len(filled)), "faint"),
        ]
    return line(width, spans)


def _values(disk: DiskPicture) -> dict[str, str]:
    both = None
    if disk.read_bytes_s is not None and disk.write_bytes_s is not None:
        both = disk.read_bytes_s + disk.write_bytes_s
    known = disk.read_iops is not None
    return {
        "reads/s": _count(disk.read_iops),
        "writes/s": _count(disk.write_iops),
        "read MB/s": _rate(disk.read_bytes_s),
        "write MB/s": _rate(disk.write_bytes_s),
        "IOPS": _count(disk.iops if known else None),
        "MB/s": _rate(both),
        "await ms": MISSING if disk.await_ms is None else f"{disk.await_ms:.2f}",
        "queue": MISSING if disk.queue is None else f"{disk.queue:.1f}",
        "busy %": MISSING if disk.busy is None else f"{disk.busy * 100:.0f}",
    }


def _count(value: float | None) -> str:
    return MISSING if value is None else f"{value:.0f}"


def _rate(value: float | None) -> str:
    if value is None:
        return MISSING
    return number_text(0) if value < 500 else f"{value / MB:.1f}"
