"""What an importer is: one file a format, each turning foreign evidence into rows of our tables.

An importer sees the text of one file (`Material`) and answers with `Reading`s: what happened to
which entity at which moment of the file. It knows neither other files nor other importers. Which
GPU an "index 1" of one file and a "00000000:C1:00.0" of another are, on which clock two files
meet, and how rates become counters is settled afterwards, for all formats alike (`join`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from bottletop.text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bottletop.model import Metric, Table, Value

MAX_BYTES = 64 << 20
"""Of one file; the rest is left unread, and said to be."""
MAX_LINE_CHARS = 4096
MAX_FACTS = 2_000_000
"""Rows of one file: a bound on memory, days of a second-by-second log of eight GPUs."""
HEAD_LINES = 200
"""Lines that a format is recognised by."""


class NotImportable(Exception):
    """A file cannot be used; the message is one line that names it and says why."""


@dataclass(frozen=True, slots=True)
class GpuId:
    """What a file calls a GPU. Empty and None where it does not say."""

    uuid: str = ""
    pci: str = ""
    index: int | None = None
    name: str = ""
    """Product name: tells GPUs apart only where nothing better is there."""
    place: int = 0
    """Position among the GPUs of one reading, for files that say nothing else."""

    def placed(self, place: int) -> GpuId:
        """With its position, unless something better names it."""
        named = self.uuid or self.pci or self.index is not None
        return self if named else replace(self, place=place)


class Fact(NamedTuple):
    """One row of a table at one moment of a file, before clocks and keys are settled."""

    table: type[Table]
    t_s: float
    """Seconds since 1970 in a file with dates, else since its own beginning."""
    values: Mapping[Metric, Value]
    gpu: GpuId | None = None
    """The GPU it is about; the row's key is then that GPU's, followed by `key`."""
    key: str = ""
    """The row's key, or what follows the GPU's: "/4711" of a process."""
    rates: Mapping[Metric, float] = {}
    """Counters of which the file tells the growth per second, up to this moment."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the person says of logs that do not say it themselves."""

    columns: tuple[str, ...] = ()
    """Columns of a table that was written without a header, by their query names."""
    every_s: float | None = None
    """Distance of readings in logs without time stamps."""


@dataclass(slots=True)
class Doubts:
    """What of a file could not be read: reasons with how often, and the first example of each."""

    _times: Counter[str] = field(default_factory=Counter)
    _first: dict[str, str] = field(default_factory=dict)

    def add(self, reason: str, example: str = "") -> None:
        """Count one thing that was not read. `reason` is one of few fixed words."""
        self._times[reason] += 1
        if example:
            self._first.setdefault(reason, clean(example, 80))

    def lines(self) -> tuple[str, ...]:
        """One line a reason, most frequent first."""
        return tuple(
            f"{reason}{f' ({times} times)' if times > 1 else ''}"
            + (f': "{self._first[reason]}"' if reason in self._first else "")
            for reason, times in self._times.most_common(8)
        )


@dataclass(frozen=True, slots=True)
class Material:
    """The text of one file."""

    name: str
    """File name, cleaned for display."""
    lines: tuple[str, ...]
    """Without line ends; control characters are still in, `text.clean` is due where text stays."""
    cut: bool = False
    """The file is larger than what is read."""

    @property
    def head(self) -> tuple[str, ...]:
        return self.lines[:HEAD_LINES]


@dataclass(frozen=True, slots=True)
class Reading:
    """What one importer made of one file."""

    format: str
    """What the file was taken for, in words that the person who made it knows."""
    facts: Sequence[Fact]
    dated: bool = False
    """`t_s` are seconds since 1970 on the wall clock of the host that wrote it."""
    assumed_s: float | None = None
    """The distance of readings was not in the file: this was assumed."""
    doubts: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    """What sampling of this kind cannot show."""


class Importer(Protocol):
    """Reads one format."""

    format: ClassVar[str]

    def recognise(self, head: Sequence[str]) -> float:
        """How surely these first lines are of this format: 0 not at all, 1 certainly."""

    def read(self, material: Material, options: Options) -> Reading:
        """Read a file that was recognised. Raises `NotImportable` where nothing can be read."""
