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
TROUBLE_LEAD = 21
"""Cells of a line that says why there are no GPUs, before the reason and after it."""
STAGE_TROUBLE_LEAD = 16
"""The same where there are no stages."""
BROKEN_LINE = 6
"""Cells that a line loses on average where it ends at a word."""
MOST_TROUBLE_ROWS = 3
GUTTER = 2
"""Cells between panels side by side."""
TWO_UP_FROM = 4
"""More GPUs than these may share lines where room is short."""
MOST_ROWS_A_GPU = 7
"""Six of utilisation history and one of marks."""
FEW_GPUS = 2
SIGNALS = 4
SIGNAL_ROWS = 4
"""With few GPUs, histories of power, clock, memory and temperature follow: three rows and a gap."""
TALL = 30
"""From here on the verdict has room to breathe, and several servers have a line each."""
MOST_SERVERS = 4

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
    gpu_trouble: int = 0
    """Cells that it takes to say why there are no GPUs."""
    cores: int = 0
    disks: int = 0
    stages: int = 0
    stage_trouble: int = 0
    """Cells that it takes to say why there are no stages."""
    servers: int = 0
    outside: int = 0
    """Sources of stages that have a rest outside of all stages, a line each where there is room."""
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
    sizes: tuple[int, ...] = ()
    """The only numbers of rows that help, where not every one does (one more for each GPU)."""

    def grown(self, rows: int, limit: int) -> int:
        """The largest useful number of rows up to `limit`, `rows` where that is less."""
        if not self.sizes:
            return max(rows, limit)
        return max([rows, *(size for size in self.sizes if size <= limit)])


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


def share(rows: int, wants: Sequence[Want], rest: str) -> dict[str, int]:
    """Give out rows: the least to each in order, then the right, then the most; what is left goes
    to `rest`. A panel whose least does not fit gets none."""
    given: dict[str, int] = {}
    left = rows
    for want in wants:
        if want.least <= left:
            given[want.name] = want.least
            left -= want.least
    for level in ("right", "most"):
        for want in wants:
            if want.name in given:
                had = given[want.name]
                given[want.name] = want.grown(had, min(had + left, getattr(want, level)))
                left -= given[want.name] - had
    if left and given:
        taker = rest if rest in given else list(given)[-1]
        given[taker] += left
    return given


def place(box: Box, given: Mapping[str, int], order: Sequence[str]) -> Plan:
    """Put panels under one another."""
    out: Plan = {}
    y = box.y
    for name in order:
        if given.get(name):
            out[name] = Box(box.x, y, box.width, given[name])
            y += given[name]
    return out


def gpu_rows(count: int, height: int) -> int:
    """Useful lines for each of `count` GPUs in a panel of `height`; 0 when not even one fits."""
    each = (height - 1) // count
    if count > FEW_GPUS or each < MOST_ROWS_A_GPU + SIGNAL_ROWS:
        return min(each, MOST_ROWS_A_GPU)
    signals = min(SIGNALS, (each - MOST_ROWS_A_GPU) // SIGNAL_ROWS)
    return MOST_ROWS_A_GPU + SIGNAL_ROWS * signals


def _gpus(content: Content, width: int, *, right_each: int, most_each: int) -> Want:
    """From two GPUs a line up to `most_each` lines a GPU; without any, room to say why."""
    count = content.gpus
    if not count:
        return Want("gpus", 2, 2, 2 if content.gpu_trouble < width - TROUBLE_LEAD else 3)
    least = 1 + (-(-count // 2) if count > TWO_UP_FROM else count)
    each = [*range(1, most_each + 1)]
    if count <= FEW_GPUS:
        each += [MOST_ROWS_A_GPU + SIGNAL_ROWS * number for number in range(1, SIGNALS + 1)]
    whole = tuple(1 + count * rows for rows in each)
    right = 1 + count * right_each
    return Want("gpus", least, right, whole[-1], (least, *whole))


def _server_rows(content: Content, height: int) -> int:
    return min(content.servers, 1 if height < TALL else MOST_SERVERS)


def _stage_rows(content: Content, width: int, height: int) -> int:
    told, room = 1, width - STAGE_TROUBLE_LEAD
    if content.stage_trouble > room:
        told = min(MOST_TROUBLE_ROWS, -(-content.stage_trouble // (room - BROKEN_LINE)))
    return 1 + _server_rows(content, height) + (content.stages or told)


def _stacked(box: Box, content: Content) -> Plan:
    many = content.gpus > TWO_UP_FROM
    each = 1 if many else 2 if content.gpus > 1 else 3
    cores = 2 if content.cores <= box.width - 8 else 3
    servers = min(1, content.servers)
    stages = _stage_rows(content, box.width, box.height)
    whole = stages + content.outside
    wants = (
        _gpus(content, box.width, right_each=each, most_each=2 if many else 6),
        # All stages get a line each or they are running text: anything between shows nothing more.
        Want("stages", 2, whole, whole, sizes=(2, 2 + servers, stages, whole)),
        Want("findings", 3, 4, 3 + content.findings),
        Want("cores", 2, cores, cores + 1),
        Want("disks", 2, min(3, 1 + content.disks), 1 + content.disks),
    )
    given = share(box.height, wants, "findings")
    return place(box, given, ("gpus", "stages", "cores", "disks", "findings"))


def _paired(box: Box, content: Content) -> Plan:
    half = max(5, min(box.height // 4, max(_stage_rows(content, box.width, box.height) + 1, 7)))
    wants = (
        _gpus(content, box.width, right_each=2, most_each=3 if content.gpus > TWO_UP_FROM else 7),
        Want("findings", 3, min(8, 2 + max(3, content.findings)), 12),
        Want("pair", 4, half, half + 2),
    )
    rows = place(box, share(box.height, wants, "findings"), ("gpus", "pair", "findings"))
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
    stages = _stage_rows(content, left_width, box.height) + 1
    lefts = (
        _gpus(content, left.width, right_each=4, most_each=MOST_ROWS_A_GPU),
        Want("stages", 3, stages, stages),
    )
    out = place(left, share(left.height, lefts, "stages"), ("gpus", "stages"))
    cores = 2 + 2 * max(1, -(-content.cores // 64))
    findings = 2 + 3 * max(2, content.findings)
    rights = (
        Want("findings", 5, min(findings, box.height // 2), findings),
        Want("cores", 3, cores, cores + 1),
        Want("disks", 3, 2 + content.disks, 2 + content.disks),
        Want("threads", 3, 8, 14),
    )
    order = ("findings", "cores", "disks", "threads")
    return out | place(right, share(right.height, rights, "threads"), order)
