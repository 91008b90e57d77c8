"""Logs of `nvidia-smi --query-gpu=... --format=csv` and `--query-compute-apps=...`, also looped.

Column names are nvidia-smi's own query names, with or without the unit in brackets. A file written
with `noheader` tells its columns by the command line where a script echoed it, by `--columns`, or
by what the cells themselves can only mean.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from bottletop.importers import smi_words
from bottletop.importers.base import MAX_FACTS, Doubts, Fact, GpuId, NotImportable, Reading
from bottletop.importers.csv_columns import COLUMNS, NAMES, Column, Role
from bottletop.importers.csv_guess import guess_columns
from bottletop.importers.moments import Moments
from bottletop.importers.values import missing
from bottletop.model import NOT_READ, Absent
from bottletop.tables import Gpu, GpuProcess
from bottletop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bottletop.importers.base import Material, Options
    from bottletop.model import Metric, Table, Value

DEFAULT_EVERY_S = 1.0
_HEADER = re.compile(r"\s*([A-Za-z_][\w.]*)\s*(?:\[([^\]]*)\])?\s*")
_COMMAND = re.compile(r"--query-(gpu|compute-apps|accounted-apps)[= ]([\w.,]+)")
MAX_KNOWN = 50_000
_TELLING = frozenset({Role.INDEX, Role.PID, Role.PCI, Role.UUID})
"""Parts of a row by which it is known for one."""
_IDENTITY = (Role.UUID, Role.PCI, Role.INDEX, Role.NAME)
_OWN_NAMES = frozenset({"pstate", "used_gpu_memory", "used_memory", "gpu_uuid", "gpu_bus_id"})
"""Query names without a dot that other tables do not use either."""


class Header(NamedTuple):
    """The columns of a table: what each is, and the unit that it says it is in."""

    columns: tuple[Column | None, ...]
    units: tuple[str, ...]
    names: tuple[str, ...]
    apps: bool
    """The rows are processes."""


class _Row(NamedTuple):
    """The cells of one line, sorted."""

    parts: dict[Role, str]
    values: dict[Metric, Value]
    flags: dict[int, bool]


def split(line: str) -> list[str]:
    """Cells of a line; nvidia-smi quotes nothing and puts a space after each comma."""
    return [part.strip() for part in line.split(",")]


def header_of(line: str) -> Header | None:
    """The header that a line is; None where it is none."""
    cells = split(line)
    names, units = [], []
    for part in cells:
        match = _HEADER.fullmatch(part)
        if match is None:
            return None
        names.append(match[1].lower())
        units.append(match[2] or "")
    return named(names, units)


def named(names: Sequence[str], units: Sequence[str] = ()) -> Header | None:
    """A header of query names; None where most of them are not nvidia-smi's."""
    known = [COLUMNS.get(NAMES.get(name, name)) for name in names]
    enough = sum(column is not None for column in known)
    own = any(
        column is not None and ("." in name or name in _OWN_NAMES)
        for name, column in zip(names, known, strict=True)
    )
    if not own or enough * 2 < len(names):
        return None
    asked = [
        unit or (column.unit if column is not None else "")
        for unit, column in zip(units or [""] * len(names), known, strict=True)
    ]
    return _header(known, asked, [clean(name, 60) for name in names])


def _header(columns: Sequence[Column | None], units: Sequence[str], names: Sequence[str]) -> Header:
    apps = any(column is not None and column.role is Role.PID for column in columns)
    return Header(tuple(columns), tuple(units), tuple(names), apps)


class SmiCsv:
    """`nvidia-smi --query-gpu` and `--query-compute-apps` as CSV."""

    format: ClassVar[str] = "nvidia-smi query (CSV)"

    def recognise(self, head: Sequence[str]) -> float:
        if any(header_of(line) is not None for line in head if "," in line or "." in line):
            return 0.9
        if any(_COMMAND.search(line) for line in head):
            return 0.8
        return 0.5 if guess_columns([split(line) for line in head if "," in line]) else 0.0

    def read(self, material: Material, options: Options) -> Reading:
        reader = _Reader(material, options)
        reader.run()
        if not reader.facts:
            raise NotImportable(f"{material.name}: a query log, but no row of it can be read")
        return Reading(
            format=f"nvidia-smi {'--query-compute-apps' if reader.apps else '--query-gpu'} CSV",
            facts=reader.facts,
            dated=reader.moments.dated,
            assumed_s=reader.moments.assumed_s,
            doubts=(*reader.doubts.lines(), *reader.notes),
            limits=smi_words.POLLED,
        )


class _Reader:
    """State of one pass over one file."""

    def __init__(self, material: Material, options: Options) -> None:
        self.material, self.options = material, options
        self.doubts = Doubts()
        self.notes: list[str] = []
        self.facts: list[Fact] = []
        self.apps = False
        self.header: Header | None = None
        self.moments = Moments(options.every_s or DEFAULT_EVERY_S)
        self._read: dict[tuple[Column, str, str], Value] = {}
        self._ids: dict[tuple[str, ...], GpuId] = {}

    def run(self) -> None:
        self.header = self._first_header()
        for line in self.material.lines:
            if not line.strip():
                continue
            if len(self.facts) >= MAX_FACTS:
                self.doubts.add("rows beyond what is read of one file")
                return
            self._line(line)

    def _may_be_header(self, line: str) -> bool:
        """Rows are many: after the first header only lines that begin with a name are tried."""
        if self.header is None:
            return True
        name = line.partition(",")[0].partition("[")[0].strip().lower()
        return name in COLUMNS or name in NAMES

    def _first_header(self) -> Header | None:
        """The header where the file begins with rows: what was asked for, said or echoed."""
        if self.options.columns:
            found = named([name.lower() for name in self.options.columns])
            if found is None:
                raise NotImportable("--columns: these are not names of nvidia-smi --help-query-gpu")
            return found
        for line in self.material.head:
            if header_of(line) is not None:
                return None
            match = _COMMAND.search(line)
            if match:
                return named([name.lower() for name in match[2].split(",") if name])
        guessed = guess_columns([split(line) for line in self.material.head if "," in line])
        if guessed is None:
            return None
        shown = ", ".join(name or "?" for name in guessed)
        self.notes.append(f"no header: columns taken for {shown}; --columns says them")
        known = [COLUMNS.get(name) for name in guessed]
        units = [column.unit if column else "" for column in known]
        return _header(known, units, [name or "?" for name in guessed])

    def _line(self, line: str) -> None:
        found = header_of(line) if self._may_be_header(line) else None
        if found is not None:
            self.header = found
            for name, column in zip(found.names, found.columns, strict=True):
                if column is None and f'column "{name}" is not used' not in self.notes:
                    self.notes.append(f'column "{name}" is not used')
            return
        failed = smi_words.failed_gpu(line, self.moments.now_s)
        if failed is not None:
            self.facts.append(failed)
            return
        header, cells = self.header, split(line)
        if header is None:
            self.doubts.add("line before any header", line)
            return
        if len(cells) > len(header.columns):
            cells = self._rejoined(cells, header)
        row = self._sorted(cells, header) if len(cells) == len(header.columns) else None
        if row is None:
            self.doubts.add("line that is no row", line)
        else:
            self._row(row, cells, header)

    @staticmethod
    def _rejoined(cells: list[str], header: Header) -> list[str]:
        """A process name may hold commas; it takes the surplus."""
        at = next(
            (n for n, c in enumerate(header.columns) if c and c.role is Role.PROCESS_NAME), None
        )
        if at is None:
            return cells
        surplus = len(cells) - len(header.columns)
        return [*cells[:at], ",".join(cells[at : at + surplus + 1]), *cells[at + surplus + 1 :]]

    def _value(self, column: Column, text: str, unit: str) -> Value:
        """The value of a cell; logs repeat themselves, so that most have been read before."""
        known = self._read.get((column, text, unit))
        if known is None:
            if len(self._read) > MAX_KNOWN:
                self._read.clear()
            known = self._read[column, text, unit] = column.value(text, unit)
        return known

    def _sorted(self, cells: Sequence[str], header: Header) -> _Row | None:
        """The cells by what they are; None unless half of them are what their columns ask for: a
        sentence with as many commas is no row."""
        row = _Row({}, {}, {})
        good = asked = 0
        for text, column, unit in zip(cells, header.columns, header.units, strict=True):
            if column is None:
                continue
            if column.role is not Role.VALUE:
                row.parts.setdefault(column.role, text)
            if column.bit:
                if missing(text) is None:
                    row.flags[column.bit] = text.lower() == "active"
            elif column.metric is not None and column.metric not in row.values:
                value = row.values[column.metric] = self._value(column, text, unit)
                if column.role is Role.VALUE:
                    asked += 1
                    good += not isinstance(value, Absent) or missing(text) is not None
                    continue
            if column.role in _TELLING or column.bit:
                asked += 1
                good += missing(text) is not None or column.fits(text)
        return row if good * 2 >= asked else None

    def _row(self, row: _Row, cells: Sequence[str], header: Header) -> None:
        self.apps = header.apps
        parts, values, flags = row
        gpu = self._gpu(parts)
        key = parts.get(Role.PID, "") if header.apps else ""
        t_s, place = self.moments.at(parts.get(Role.TIME, ""), (gpu, key))
        gpu = gpu if header.apps else gpu.placed(place)
        if header.apps:
            self._process(t_s, gpu, parts, values)
            return
        if Gpu.power_limit_requested_w in values:
            values.setdefault(Gpu.power_limit_w, values[Gpu.power_limit_requested_w])
        values.setdefault(Gpu.health, smi_words.health_of(cells))
        for metric, value in smi_words.reasons(flags).items():
            values.setdefault(metric, value)
        self.facts.append(Fact(Gpu, t_s, values, gpu))
        self.facts.extend(column_facts(values, t_s, gpu))

    def _gpu(self, parts: dict[Role, str]) -> GpuId:
        told = tuple(parts.get(role, "") for role in _IDENTITY)
        known = self._ids.get(told)
        if known is None:
            uuid, pci, index, name = told
            known = GpuId(
                uuid=clean(uuid, 64),
                pci=smi_words.pci_id(pci),
                index=int(index) if index.isdecimal() and len(index) < 5 else None,
                name=clean(name, 80),
            )
            if len(self._ids) < MAX_KNOWN:
                self._ids[told] = known
        return known

    def _process(
        self, t_s: float, gpu: GpuId, parts: dict[Role, str], values: dict[Metric, Value]
    ) -> None:
        pid = parts.get(Role.PID, "")
        if not pid.isdecimal() or not 0 < int(pid) < 2**32:
            self.doubts.add("process without a pid", pid)
            return
        values[GpuProcess.pid] = int(pid)
        name = smi_words.program(parts.get(Role.PROCESS_NAME, ""))
        values[GpuProcess.process] = name or NOT_READ
        self.facts.append(Fact(GpuProcess, t_s, values, gpu, f"/{pid}"))


def column_facts(values: dict[Metric, Value], t_s: float, gpu: GpuId) -> Iterable[Fact]:
    """Take what belongs to other tables out of a GPU's row, as rows of their own."""
    others: dict[type[Table], dict[Metric, Value]] = {}
    for metric in [metric for metric in values if metric.table is not Gpu]:
        others.setdefault(metric.table, {})[metric] = values.pop(metric)
    for table, own in others.items():
        yield Fact(table, t_s, own, gpu)
