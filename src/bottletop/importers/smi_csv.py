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
from bottletop.model import NOT_READ
from bottletop.tables import Gpu, GpuProcess
from bottletop.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bottletop.importers.base import Material, Options
    from bottletop.model import Metric, Value

DEFAULT_EVERY_S = 1.0
_HEADER = re.compile(r"\s*([A-Za-z_][\w.]*)\s*(?:\[([^\]]*)\])?\s*")
_COMMAND = re.compile(r"--query-(gpu|compute-apps|accounted-apps)[= ]([\w.,]+)")
_OWN_NAMES = frozenset({"pstate", "used_gpu_memory", "used_memory", "gpu_uuid", "gpu_bus_id"})
"""Query names without a dot that other tables do not use either."""


class Header(NamedTuple):
    """The columns of a table: what each is, and the unit that it says it is in."""

    columns: tuple[Column | None, ...]
    units: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def apps(self) -> bool:
        """Whether the rows are processes."""
        return any(column is not None and column.role is Role.PID for column in self.columns)


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
    return Header(tuple(known), tuple(asked), tuple(clean(name, 60) for name in names))


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

    def run(self) -> None:
        self.header = self._first_header()
        for line in self.material.lines:
            if not line.strip():
                continue
            if len(self.facts) >= MAX_FACTS:
                self.doubts.add("rows beyond what is read of one file")
                return
            self._line(line)

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
        units = tuple(column.unit if column else "" for column in known)
        return Header(tuple(known), units, tuple(name or "?" for name in guessed))

    def _line(self, line: str) -> None:
        found = header_of(line)
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
        if len(cells) != len(header.columns) or not self._plausible(cells, header):
            self.doubts.add("line that is no row", line)
            return
        self._row(cells, header)

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

    @staticmethod
    def _plausible(cells: Sequence[str], header: Header) -> bool:
        """Whether half of the cells are what their columns ask for: not a sentence with commas."""
        good = asked = 0
        for text, column, unit in zip(cells, header.columns, header.units, strict=True):
            if column is None or (column.metric is None and column.role is Role.VALUE):
                continue
            if column.role in (Role.NAME, Role.PROCESS_NAME):
                continue
            asked += 1
            good += missing(text) is not None or column.fits(text, unit)
        return good * 2 >= asked

    def _row(self, cells: Sequence[str], header: Header) -> None:
        self.apps = header.apps
        parts: dict[Role, str] = {}
        values: dict[Metric, Value] = {}
        flags: dict[int, bool] = {}
        for text, column, unit in zip(cells, header.columns, header.units, strict=True):
            if column is None:
                continue
            if column.role is not Role.VALUE:
                parts.setdefault(column.role, text)
            if column.bit:
                if missing(text) is None:
                    flags[column.bit] = text.lower() == "active"
            elif column.metric is not None and column.metric not in values:
                values[column.metric] = column.value(text, unit)
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
        index = parts.get(Role.INDEX, "")
        return GpuId(
            uuid=clean(parts.get(Role.UUID, ""), 64),
            pci=smi_words.pci_id(parts.get(Role.PCI, "")),
            index=int(index) if index.isdecimal() and len(index) < 5 else None,
            name=clean(parts.get(Role.NAME, ""), 80),
        )

    def _process(
        self, t_s: float, gpu: GpuId, parts: dict[Role, str], values: dict[Metric, Value]
    ) -> None:
        pid = parts.get(Role.PID, "")
        if not pid.isdecimal() or not 0 < int(pid) < 2**32:
            self.doubts.add("process without a pid", pid)
            return
        values[GpuProcess.pid] = int(pid)
        name = clean(parts.get(Role.PROCESS_NAME, "").rpartition("/")[2], 60)
        values[GpuProcess.process] = name or NOT_READ
        self.facts.append(Fact(GpuProcess, t_s, values, gpu, f"/{pid}"))


def column_facts(values: dict[Metric, Value], t_s: float, gpu: GpuId) -> Iterable[Fact]:
    """Take what belongs to other tables out of a GPU's row, as rows of their own."""
    others: dict[type, dict[Metric, Value]] = {}
    for metric in [metric for metric in values if metric.table is not Gpu]:
        others.setdefault(metric.table, {})[metric] = values.pop(metric)
    for table, own in others.items():
        yield Fact(table, t_s, own, gpu)
