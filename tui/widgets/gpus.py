"""The GPUs: utilisation history with the findings drawn on it, and what the card says now."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from bottletop.model import NS_PER_S, Severity, Value
from bottletop.text import fit
from bottletop.tui import history
from bottletop.tui.inks import SEVERITY_INKS
from bottletop.tui.layout import MOST_ROWS_A_GPU, SIGNAL_ROWS, gpu_rows
from bottletop.tui.lines import Line, Span, header, line, runs, spread, wrap
from bottletop.tui.values import absent_word
from bottletop.tui.widgets.panel import Panel
from bottletop.units import age_text, value_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.tui.glyphs import Glyphs
    from bottletop.tui.history import Grid
    from bottletop.tui.marks import Moment
    from bottletop.tui.read_gpu import GpuPicture, Signal
    from bottletop.tui.reading import Reading

GIB = 1 << 30
LEAD = 6
"""Cells before a history: sign, number and their spaces."""
MIN_HISTORY = 8
USUAL_S = 60.0
SETTLED_S = 3.0

COLUMNS = (("util %", 6), ("power W", 9), ("SM MHz", 11), ("mem GiB", 11), ("°C", 4))
"""Heads and widths of the values at the right, a gap of one cell included."""
VALUES = sum(width for _, width in COLUMNS)
SHORT_COLUMNS = (("util %", 6), ("W", 5), ("°C", 4))
SHORT_VALUES = sum(width for _, width in SHORT_COLUMNS)
NOTE_LINES = 2
TWO_UP_MIN = 6


class GpuPanel(Panel):
    """Rows of GPUs; as much history as there is room for."""

    def __init__(self, glyphs: Glyphs, *, id: str) -> None:  # noqa: A002
        super().__init__(glyphs, id=id)
        self._histories = Histories()

    def draw(self, reading: Reading, width: int, height: int) -> Sequence[Line]:
        return draw(reading, width, height, self.glyphs, self._histories)

    def gpu_at(self, y: int) -> GpuPicture | None:
        """The GPU drawn in line `y`, None for the head line and empty ones."""
        reading = self.reading
        if reading is None or y < 1 or not reading.gpus:
            return None
        rows = gpu_rows(len(reading.gpus), self.size.height)
        at = (y - 1) // max(1, rows)
        return reading.gpus[at] if rows and at < len(reading.gpus) else None


class Histories:
    """Columns of every GPU as they were drawn last, so that a new second costs a few columns.

    A column further back than `SETTLED_S` does not change any more: samples arrive at most a tick
    or two late.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Grid, list[float]]] = {}

    def columns(self, gpu: GpuPicture, on: Grid) -> list[float]:
        """The same as `gpu.util_columns(on)`."""
        kept = self._kept.get(gpu.key)
        values = self._moved_on(gpu, on, *kept) if kept else None
        if values is None:
            values = gpu.util_columns(on)
        self._kept[gpu.key] = (on, values)
        return values

    @staticmethod
    def _moved_on(
        gpu: GpuPicture, on: Grid, before: Grid, values: list[float]
    ) -> list[float] | None:
        if (on.step_ns, on.columns) != (before.step_ns, before.columns):
            return None
        shift = (on.end_ns - before.end_ns) // on.step_ns
        fresh = shift + -(-round(SETTLED_S * NS_PER_S) // on.step_ns)
        if shift < 0 or fresh >= on.columns:
            return None
        tail = gpu.util_columns(history.Grid(on.end_ns, on.step_ns, fresh))
        return values[shift : on.columns - fresh + shift] + tail


def draw(
    reading: Reading,
    width: int,
    height: int,
    glyphs: Glyphs,
    histories: Histories | None = None,
) -> list[Line]:
    """Draw all GPUs into `height` lines of `width` cells."""
    histories = histories or Histories()
    gpus = reading.gpus
    if not gpus:
        why = reading.gpu_trouble or "none on this host"
        lead = "   no GPU readings: "
        told = wrap(why, width - len(lead) - 1, max(1, height - 1))
        leads = [lead, *[" " * len(lead)] * (len(told) - 1)]
        return [
            header(width, "GPUs", rule=glyphs.rule),
            *(
                line(width, [(start, "text"), (text, "dim")])
                for start, text in zip(leads, told, strict=True)
            ),
        ]
    rows = gpu_rows(len(gpus), height)
    if rows == 0:
        return _two_up(reading, width, height, glyphs, histories)
    out = [_header(reading, width, glyphs)]
    marked = rows == 1 and _spare_for_marks(gpus, height)
    for gpu in gpus:
        out.extend(_block(gpu, reading, width, rows, glyphs, histories))
        if marked and gpu.moments:
            out.append(_marks_line(gpu, reading, width, glyphs))
    return out[:height]


def _spare_for_marks(gpus: Sequence[GpuPicture], height: int) -> bool:
    return 1 + len(gpus) + sum(bool(gpu.moments) for gpu in gpus) <= height


def _history_width(width: int) -> int:
    return max(MIN_HISTORY, width - LEAD - VALUES - 2)


def _header(reading: Reading, width: int, glyphs: Glyphs) -> Line:
    facts: list[Span] = [(_models(reading.gpus), "dim")]
    room = LEAD + _history_width(width)
    span: list[Span] = [(_span(reading, room - LEAD, glyphs), "dim")]
    if reading.gpu_trouble:
        facts, span = [(reading.gpu_trouble, "warn")], []
    heads = "".join(f"{name:>{size}}" for name, size in COLUMNS)
    head = header(room, "GPUs", facts, span, rule=glyphs.rule)
    return line(width, [*head, (heads, "dim")])


def _span(reading: Reading, cells: int, glyphs: Glyphs) -> str:
    return f"last {age_text(_span_s(reading, cells * glyphs.samples_a_cell))}"


def _models(gpus: Sequence[GpuPicture]) -> str:
    counted = Counter(gpu.model for gpu in gpus if gpu.model)
    return ", ".join(
        f"{count} × {model}" if count > 1 else model for model, count in counted.items()
    )


def _grid(reading: Reading, cells: int, glyphs: Glyphs) -> Grid:
    samples = cells * glyphs.samples_a_cell
    return history.grid(reading.now_ns, _span_s(reading, samples), samples)


def _span_s(reading: Reading, samples: int) -> float:
    """Seconds drawn: half of the usual minute where a second would get less than two samples, as
    swings of a few seconds could not be seen."""
    short = reading.history_s == USUAL_S and samples < 2 * USUAL_S
    return USUAL_S / 2 if short else reading.history_s


def _block(
    gpu: GpuPicture,
    reading: Reading,
    width: int,
    rows: int,
    glyphs: Glyphs,
    histories: Histories,
) -> list[Line]:
    """One GPU: history rows with values beside the first, then the row of marks where there is
    room for it."""
    cells = _history_width(width)
    tall = max(1, min(rows, MOST_ROWS_A_GPU) - 1)
    on = _grid(reading, cells, glyphs)
    pictures = history.area(histories.columns(gpu, on), tall, glyphs)
    inks = ["data"] * cells
    if rows == 1:
        # Without a line for the marks the history itself carries their colour.
        inks = _cell_inks(gpu.moments, on, cells, glyphs)
    details = _details(gpu)
    out = []
    for row, picture in enumerate(pictures):
        lead = _lead(gpu, glyphs, kind=rows == 1) if row == 0 else [(" " * LEAD, "text")]
        tail = _values(gpu) if row == 0 else details[row - 1] if row <= len(details) else []
        out.append(line(width, [*lead, *runs(picture, inks), *tail]))
    if rows > 1:
        out.append(_marks_line(gpu, reading, width, glyphs, brief=rows == 2))
    for signal in gpu.signals[: (rows - len(out)) // SIGNAL_ROWS]:
        out += _signal(signal, on, width, glyphs)
    return out


def _signal(signal: Signal, on: Grid, width: int, glyphs: Glyphs) -> list[Line]:
    """History of another signal, its name and value beside it, and a blank line."""
    values = signal.columns(on)
    pictures = history.area(values, SIGNAL_ROWS - 1, glyphs, 0, signal.top)
    out = []
    for row, picture in enumerate(pictures):
        tail: list[Span] = []
        if row == 0:
            tail = [("  ", "text"), (f"{signal.name} ", "dim"), (signal.shown, "text")]
            tail.append((f" of {signal.limit}" if signal.limit else "", "dim"))
        out.append(line(width, [(" " * LEAD, "text"), (picture, "data"), *tail]))
    return [*out, line(width, ())]


def _lead(gpu: GpuPicture, glyphs: Glyphs, *, kind: bool) -> list[Span]:
    sign, ink = " ", "text"
    if gpu.trouble and gpu.trouble_ink != "dim":
        worst = Severity.WARN if gpu.trouble_ink == "warn" else Severity.CRIT
        sign, ink = glyphs.severity[worst], gpu.trouble_ink
    elif gpu.mark is not None:
        sign, ink = glyphs.severity[gpu.mark.severity], SEVERITY_INKS[gpu.mark.severity]
    mark = _kind(gpu, glyphs) if kind else (" ", "text")
    return [(" ", "text"), (sign, ink), (f"{gpu.label:>2}", "strong"), (" ", "text"), mark]


def _kind(gpu: GpuPicture, glyphs: Glyphs) -> Span:
    """What kind of mark the history carries, where there is no line for the marks themselves."""
    if not gpu.moments:
        return (" ", "text")
    worst = max(gpu.moments, key=lambda moment: (moment.severity, moment.held))
    sign = glyphs.held if worst.held else glyphs.cycle[0]
    return (sign, SEVERITY_INKS[worst.severity])


def _values(gpu: GpuPicture) -> list[Span]:
    if gpu.trouble:
        return [(f"  {gpu.trouble}", gpu.trouble_ink)]
    return [
        *_util(gpu),
        *_pair(gpu.power_w, gpu.power_limit_w, 9),
        *_pair(gpu.sm_clock_mhz, gpu.sm_clock_max_mhz, 11),
        *_memory(gpu, 11),
        *_cell(gpu.temp_c, 4),
    ]


def _details(gpu: GpuPicture) -> list[list[Span]]:
    """What else there is to say beside a history of several lines, the most telling first."""
    lines: list[list[Span]] = [
        [(f"  {part}", "text" if note.severity is None else SEVERITY_INKS[note.severity])]
        for note in gpu.notes
        for part in wrap(note.text, VALUES - 2, NOTE_LINES)
    ]
    if gpu.trouble:
        return lines
    if gpu.shared_memory:
        lines.append([(f"  {gpu.shared_memory}", "dim")])
    if gpu.clocks_held:
        held = f"clocks held: {gpu.clocks_held}"
        lines += [[(f"  {part}", "text")] for part in wrap(held, VALUES - 2, NOTE_LINES)]
    if isinstance(gpu.mem_util_pct, (int, float)):
        lines.append([("  memory busy ", "dim"), (f"{gpu.mem_util_pct:.0f} %", "text")])
    if gpu.pcie_in_bytes_s is not None and gpu.pcie_out_bytes_s is not None:
        lines.append(
            [
                ("  PCIe in ", "dim"),
                (value_text(gpu.pcie_in_bytes_s, "B/s"), "text"),
                ("  out ", "dim"),
                (value_text(gpu.pcie_out_bytes_s, "B/s"), "text"),
            ]
        )
    lines += [
        [
            (f"  {fit(name, 18)}", "text"),
            (f" {value_text(mem_bytes, 'B'):>9}", "text"),
            (f"  {whose} {pid}", "dim"),
        ]
        for pid, whose, name, mem_bytes in gpu.processes
    ]
    return lines


def _brief(gpu: GpuPicture) -> list[Span]:
    """The one line of details that there is room for where a GPU has two lines."""
    details = _details(gpu)
    count = len(gpu.processes)
    if gpu.notes or gpu.clocks_held or not count or gpu.trouble:
        more = f" +{len(gpu.notes) - 1}" if len(gpu.notes) > 1 else ""
        return [*details[0], (more, "dim")] if details else []
    more = f" +{count - 1}" if count > 1 else ""
    return [*details[-count], (more, "dim")]


def _util(gpu: GpuPicture) -> list[Span]:
    if gpu.in_mig and not isinstance(gpu.util_pct, (int, float)):
        return [(f"{'MIG':>6}", "dim")]
    return _cell(gpu.util_pct, 6, "strong")


def _cell(value: Value, width: int, ink: str = "text") -> list[Span]:
    if isinstance(value, (int, float)):
        return [(f"{value:>{width}.0f}", ink)]
    return [(f"{absent_word(value):>{width}}"[-width:], "dim")]


def _memory(gpu: GpuPicture, width: int) -> list[Span]:
    """Memory used and there; a part without its own says so, since the total is the host's."""
    if gpu.shared_memory and not isinstance(gpu.mem_used_bytes, (int, float)):
        return [(f"{'shared':>{width}}", "dim")]
    return _pair(gpu.mem_used_bytes, gpu.mem_total_bytes, width, GIB)


def _pair(value: Value, limit: Value, width: int, scale: int = 1) -> list[Span]:
    """A value and what bounds it: the bound is context and stays in the background."""
    if not isinstance(value, (int, float)):
        return _cell(value, width)
    shown = f"{value / scale:.1f}" if scale > 1 else f"{value:.0f}"
    bound = f"/{limit / scale:.0f}" if isinstance(limit, (int, float)) else ""
    return [(f"{shown:>{max(0, width - len(bound))}}", "text"), (bound, "dim")]


# -- findings on the history --------------------------------------------------------------------


def _cell_inks(moments: Sequence[Moment], on: Grid, cells: int, glyphs: Glyphs) -> list[str]:
    """The ink of each history cell: throttled seconds take their finding's colour."""
    inks = ["data"] * cells
    for moment in moments:
        if moment.held:
            first, last = _cells_of(moment, on, glyphs)
            for cell in range(max(0, first), min(cells, last + 1)):
                inks[cell] = SEVERITY_INKS[moment.severity]
    return inks


def _cells_of(moment: Moment, on: Grid, glyphs: Glyphs) -> tuple[int, int]:
    """First and last cell that a moment covers."""
    samples = glyphs.samples_a_cell
    first = on.column(moment.start_ns + 1) // samples
    return first, max(first, on.column(moment.end_ns) // samples)


def _marks_line(
    gpu: GpuPicture, reading: Reading, width: int, glyphs: Glyphs, *, brief: bool = False
) -> Line:
    """The signs under a history: one bracket a cycle, one arrow a throttled cell."""
    cells = _history_width(width)
    tail: list[Span] = []
    if gpu.mark is not None:
        tail = [("  ", "text"), (", ".join(gpu.mark.codes), SEVERITY_INKS[gpu.mark.severity])]
    elif brief:
        tail = _brief(gpu)
    if not gpu.moments:
        return line(width, [(" " * (LEAD + cells), "text"), *tail])
    on = _grid(reading, cells, glyphs)
    signs = [" "] * cells
    inks = ["text"] * cells
    for moment in gpu.moments:
        first, last = _cells_of(moment, on, glyphs)
        ink = SEVERITY_INKS[moment.severity]
        for cell in range(max(0, first), min(cells, last + 1)):
            if not moment.held and inks[cell] != "text" and signs[cell] == glyphs.held:
                continue
            signs[cell] = glyphs.held if moment.held else _bracket(cell, first, last, glyphs)
            inks[cell] = ink
    return line(width, [(" " * LEAD, "text"), *runs(signs, inks), *tail])


def _bracket(cell: int, first: int, last: int, glyphs: Glyphs) -> str:
    whole, begin, middle, end = glyphs.cycle
    if first == last:
        return whole
    return begin if cell == first else end if cell == last else middle


# -- many GPUs, few lines ------------------------------------------------------------------------


def _two_up(
    reading: Reading, width: int, height: int, glyphs: Glyphs, histories: Histories
) -> list[Line]:
    """Two GPUs a line with short values; what still does not fit is counted, not hidden."""
    half = width // 2
    cells = max(TWO_UP_MIN, half - LEAD - SHORT_VALUES - 1)
    heads = "".join(f"{name:>{size}}" for name, size in SHORT_COLUMNS)
    model = _models(reading.gpus)
    facts: list[Span] = [(model, "dim")] if len(model) + 8 < half - SHORT_VALUES else []
    if reading.gpu_trouble:
        facts = [(reading.gpu_trouble, "warn")]
    left = header(half - SHORT_VALUES, "GPUs", facts, rule=glyphs.rule)
    span: list[Span] = [(_span(reading, cells, glyphs), "dim")]
    right = header(width - half - SHORT_VALUES, "", (), span, rule=glyphs.rule)
    out = [line(width, [*left, (heads, "dim"), *right, (heads, "dim")])]
    gpus = list(reading.gpus)
    room = (height - 1) * 2
    shown = gpus if len(gpus) <= room else gpus[: room - 2]
    columns = -(-len(shown) // 2)
    for row in range(columns):
        spans: list[Span] = []
        for gpu in shown[row : len(shown) : columns]:
            spans.extend(line(half, _short_row(gpu, reading, cells, glyphs, histories)))
        out.append(line(width, spans))
    if len(shown) < len(gpus):
        more = f"   {len(gpus) - len(shown)} more GPUs: press 1"
        out.append(spread(width, [(more, "dim")], []))
    return out


def _short_row(
    gpu: GpuPicture, reading: Reading, cells: int, glyphs: Glyphs, histories: Histories
) -> list[Span]:
    on = _grid(reading, cells, glyphs)
    picture = history.area(histories.columns(gpu, on), 1, glyphs)[0]
    values = (
        [(f"  {gpu.trouble}", gpu.trouble_ink)]
        if gpu.trouble
        else [*_util(gpu), *_cell(gpu.power_w, 5), *_cell(gpu.temp_c, 4)]
    )
    inks = _cell_inks(gpu.moments, on, cells, glyphs)
    return [*_lead(gpu, glyphs, kind=True), *runs(picture, inks), *values]
