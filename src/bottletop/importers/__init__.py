"""Importers of foreign evidence: logs that people have in tickets, as rows of our own tables.

`IMPORTERS` is explicit. A new format is one file with a class that is an `Importer`, listed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bottletop.importers.base import Importer, Material, NotImportable, Options, Reading
from bottletop.importers.gpu_series import GpuSeries
from bottletop.importers.join import Joined, join
from bottletop.importers.material import load, material
from bottletop.importers.meminfo import Meminfo
from bottletop.importers.smi_csv import SmiCsv
from bottletop.importers.smi_dmon import SmiDmon
from bottletop.importers.smi_pmon import SmiPmon
from bottletop.importers.smi_query import SmiQuery
from bottletop.importers.smi_table import SmiTable

if TYPE_CHECKING:
    from collections.abc import Sequence

IMPORTERS: tuple[Importer, ...] = (
    SmiQuery(),
    SmiTable(),
    SmiDmon(),
    SmiPmon(),
    SmiCsv(),
    GpuSeries(),
    Meminfo(),
)


def read(
    found: Material, options: Options | None = None, importers: Sequence[Importer] = IMPORTERS
) -> Reading:
    """Read one file by the importer that knows its first lines best. Raises `NotImportable`."""
    head = found.head
    best = max(importers, key=lambda importer: importer.recognise(head))
    if best.recognise(head) <= 0:
        if options is not None and options.columns:
            return SmiCsv().read(found, options)
        known = ", ".join(importer.format for importer in importers)
        hint = "; if it is a query without header and units, say --columns" if _bare(head) else ""
        raise NotImportable(f"{found.name}: no format that can be read{hint}; known: {known}")
    return best.read(found, options or Options())


def _bare(head: Sequence[str]) -> bool:
    """Whether these lines are a table of numbers without a word on what they are."""
    cells = [line.split(",") for line in head if line.count(",") > 1]
    return bool(cells) and all(any(c.strip().isdecimal() for c in row) for row in cells)


__all__ = [
    "IMPORTERS",
    "Importer",
    "Joined",
    "Material",
    "NotImportable",
    "Options",
    "Reading",
    "join",
    "load",
    "material",
    "read",
]
