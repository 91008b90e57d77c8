"""Which panel gets which part of the screen. Pure arithmetic, one plan for each size.

Three shapes: stacked (80x24 and narrow windows), paired (from 110 columns: stages beside cores and
disks), and wide (from 160 columns and 40 rows: GPUs and stages left, findings and the host right).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MIN_WIDTH, MIN_HEIGHT = 60, 15
PAIRED_WIDTH = 110
WIDE_WIDTH, WIDE_HEIGHT = 160, 40
GUTTER = 2
"""Cells between panels side by side."""
TALL = 30
"""From here on the verdict has room to breathe."""

PANELS = ("gpus", "stages", "cores", "disks", "threads", "findings")
"""In the order of their keys, 1 to 6."""


class Box(NamedTuple):
    """A part of the screen in cells."""

    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Content:
    """How much there is to show, as far as room depends on it."""

    gpus: int = 0
    cores: int = 0
    disks: int = 0
    stages: int = 0
    findings: int = 0
    target: bool = False
    replay: bool = False
    log: bool = False
    solo: str = ""
    """The one panel that was expanded, empty for the overview."""


class Want(NamedTuple):
    """Rows of a panel, its head line included: the least, the right, and the most it can use."""

    name: str
    least: int
    right: int
    most: int
    step: int = 1
    """Rows that only help together: one for each GPU."""


Plan = dict[str, Box]


def too_small(width: int, height: int) -> bool:
    return width < MIN_WIDTH or height < MIN_HEIGHT


def shape_of(width: int, height: int) -> str:
    """`stacked`, `paired` or `wide`."""
    if width >= WIDE_WIDTH and height >= WIDE_HEIGHT:
        return "wide"
    return "paired" if width >= PAIRED_WIDTH and height >= 24 else "stacked"


def plan(width: int, height: int, content: Content) -> Plan:
    """Place every panel that fits. Empty when the screen is too small."""
    if too_small(width, height):
        return {}
    boxes: Plan = {"host": Box(0, 0, width, 1), "keys": Box(0, height - 1, width, 1)}
    verdict = 3 if height < TALL else 5
    boxes["verdict"] = Box(0, 1, width, verdict)
    top, bottom = 1 + verdict, height - 1
    if content.replay:
        rows = 2 if height < TALL else 3
        boxes["transport"] = Box(0, bottom - rows, width, rows)
        bottom -= rows
    if content.log:
        rows = max(4, (bottom - top) // 3)
        boxes["log"] = Box(0, bottom - rows, width, rows)
        bottom -= rows
    body = Box(0, top, width, bottom - top)
    if content.solo:
        boxes[content.solo] = body
    else:
        shape = {"stacked": _stacked, "paired": _paired, "wide": _wide}[shape_of(width, height)]
        boxes.update(shape(body, content))
    return boxes


def share(rows: int, wants: Sequence[Want]) -> dict[str, int]:
    """Give out rows: the least to each in order, then the right, then the most; none to the rest.

    Whatever is left goes to the last that was given any.
    """
    given: dict[str, int] = {}
    left = rows
    for want in wants:
        if want.least <= left:
            given[want.name] = want.least
            left -= want.least
    for level in ("right", "most"):
        for want in wants:
            if want.name in given:
                more = min(left, max(0, getattr(want, level) - given[want.name]))
                more -= more % want.step
                given[want.name] += more
                left -= more
    if given and left:
        given[list(given)[-1]] += left
    return given


def stack(box: Box, wants: Sequence[Want], order: Sequence[str]) -> Plan:
    """Put panels under one another in `order`, rows given by the priority in `wants`."""
    given = share(box.height, wants)
    out: Plan = {}
    y = box.y
    for name in order:
        if name in given:
            out[name] = Box(box.x, y, box.width, given[name])
            y += given[name]
    return out


MOST_ROWS_A_GPU = 7


def gpu_rows(count: int, rows_each: int) -> int:
    return 1 + max(1, count) * rows_each


def _gpus(content: Content, *, least_each: int = 1, right_each: int, most_each: int) -> Want:
    count = content.gpus
    least = gpu_rows(count, least_each) if count <= 8 else 1 + -(-count // 2)
    return Want(
        "gpus",
        min(least, 9),
        gpu_rows(count, right_each),
        gpu_rows(count, most_each) if count else 2,
        max(1, count) if count <= 8 else 1,
    )


def _stage_rows(content: Content) -> int:
    return 1 + max(1, content.stages)


def _stacked(box: Box, content: Content) -> Plan:
    many = content.gpus > 4
    cores = 2 if content.cores <= box.width - 8 else 3
    wants = (
        _gpus(content, right_each=1 if many else 3, most_each=2 if many else 6),
        Want("findings", 2, 4, 2 + max(2, content.findings)),
        Want("stages", 2, _stage_rows(content), _stage_rows(content)),
        Want("cores", 2, cores, cores + 1),
        Want("disks", 2, min(3, 1 + content.disks), 1 + content.disks),
    )
    order = ("gpus", "stages", "cores", "disks", "findings")
    given = share(box.height, wants)
    # Rows nobody asked for go to the histories and to findings, not to whoever is last.
    spare = given.get("disks", 0) - (1 + max(1, content.disks))
    if spare > 0:
        given["disks"] -= spare
        given["findings"] = given.get("findings", 0) + spare
    return _place(box, given, order)


def _place(box: Box, given: Mapping[str, int], order: Sequence[str]) -> Plan:
    out: Plan = {}
    y = box.y
    for name in order:
        if given.get(name):
            out[name] = Box(box.x, y, box.width, given[name])
            y += given[name]
    return out


def _paired(box: Box, content: Content) -> Plan:
    half = max(5, min(box.height // 4, max(_stage_rows(content) + 1, 7)))
    wants = (
        _gpus(content, right_each=2, most_each=3 if content.gpus > 4 else 7),
        Want("findings", 3, min(8, 2 + max(3, content.findings)), 12),
        Want("pair", 4, half, half + 2),
    )
    given = share(box.height, wants)
    rows = _place(box, given, ("gpus", "pair", "findings"))
    pair = rows.pop("pair", None)
    if pair is not None:
        left = pair.width * 11 // 20
        rows["stages"] = Box(pair.x, pair.y, left - GUTTER, pair.height)
        right = Box(pair.x + left, pair.y, pair.width - left, pair.height)
        cores = 3 if pair.height >= 6 else 2
        rows["cores"] = Box(right.x, right.y, right.width, cores)
        rows["disks"] = Box(right.x, right.y + cores, right.width, right.height - cores)
    return rows


def _wide(box: Box, content: Content) -> Plan:
    left_width = box.width * 29 // 50
    left = Box(box.x, box.y, left_width - GUTTER, box.height)
    right = Box(box.x + left_width, box.y, box.width - left_width, box.height)
    count = max(1, content.gpus)
    stages = min(_stage_rows(content) + 1, box.height // 3)
    each = max(1, min(MOST_ROWS_A_GPU, (box.height - stages - 1) // count))
    gpus = min(2 + count * each, box.height - stages)
    out = {
        "gpus": Box(left.x, left.y, left.width, gpus),
        "stages": Box(left.x, left.y + gpus, left.width, left.height - gpus),
    }
    cores = 2 + 2 * max(1, -(-content.cores // 64))
    findings = 2 + 3 * max(2, content.findings)
    wants = (
        Want("findings", 5, min(findings, box.height // 2), findings),
        Want("cores", 3, cores, cores + 1),
        Want("disks", 3, 2 + content.disks, 2 + content.disks),
        Want("threads", 3, 8, 40),
    )
    out.update(stack(right, wants, ("findings", "cores", "disks", "threads")))
    return out
