"""Text of `nvidia-smi -q`, all of it or a part (`-d`), once or looped, of old and new drivers.

The text is a tree by indentation. What a leaf is called moved over the years ("Clocks Throttle
Reasons" became "Clocks Event Reasons", "Power Readings" became "GPU Power Readings"), so each
column lists the paths under which it has been seen.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from bottletop.importers import smi_words, stamps
from bottletop.importers.base import Doubts, Fact, GpuId, NotImportable, Reading
from bottletop.importers.query_paths import Tree, gpu_values, health_values, process_facts
from bottletop.tables import Gpu, GpuHealth
from bottletop.text import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.importers.base import Material, Options

DEFAULT_EVERY_S = 5.0
"""`nvidia-smi -q -l` without a number reads every five seconds."""
MAX_GPUS = 4096
MAX_LEAVES = 2000
"""Of one GPU: a bound on what a hostile file can make us hold."""
_GPU = re.compile(r"(?:GPU|MIG) ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s*:?\s*")
_LEAF = re.compile(r"(?P<name>[^:]*?\S)\s*:(?:\s+(?P<value>.*))?$")
_SIGNS = (
    "NVSMI LOG",
    "Product Name  ",
    "Clocks Throttle Reasons",
    "Clocks Event Reasons",
    "GPU Recovery Action",
    "FB Memory Usage",
    "Remapped Rows",
    "Retired Pages",
    "ECC Errors",
    "GPU Current Temp",
    "Power Readings",
)
LIMITS = (
    "a single snapshot: says what state the GPU is in, not what it did; rules that need a stretch"
    " of time cannot be judged",
)


class SmiQuery:
    """`nvidia-smi -q`."""

    format: ClassVar[str] = "nvidia-smi -q"

    def recognise(self, head: Sequence[str]) -> float:
        if any("NVSMI LOG" in line for line in head):
            return 1.0
        if not any(_GPU.fullmatch(line.strip()) for line in head):
            return 0.0
        return 0.95 if any(sign in line for line in head for sign in _SIGNS) else 0.3

    def read(self, material: Material, options: Options) -> Reading:
        reader = _Reader(options.every_s or DEFAULT_EVERY_S)
        for line in material.lines:
            reader.line(line)
        reader.end_gpu()
        if not reader.facts:
            raise NotImportable(f"{material.name}: a -q log, but no GPU of it can be read")
        looped = reader.logs > 1
        return Reading(
            format=f"nvidia-smi -q ({reader.logs} snapshots)" if looped else self.format,
            facts=reader.facts,
            dated=reader.dated,
            assumed_s=reader.every_s if looped and not reader.dated else None,
            doubts=reader.doubts.lines(),
            limits=smi_words.POLLED if looped else LIMITS,
        )


class _Reader:
    """State of one pass over one file."""

    def __init__(self, every_s: float) -> None:
        self.every_s = every_s
        self.facts: list[Fact] = []
        self.doubts = Doubts()
        self.dated = False
        self.logs = 1
        self._t_s = 0.0
        self._driver = ""
        self._attached = 0
        self._seen: list[str] = []
        self._gpu = ""
        self._tree = Tree()

    def line(self, line: str) -> None:
        """Take in the next line."""
        text = line.strip()
        if not text:
            return
        head = _GPU.fullmatch(text)
        if "NVSMI LOG" in text:
            self._next_log()
        elif head is not None and not line.startswith("  "):
            self.end_gpu()
            self._begin_gpu(head[1])
        elif self._gpu and (line[0] in " \t"):
            if len(self._tree) < MAX_LEAVES:
                self._leaf(line, text)
        else:
            self._front(line, text)

    def _next_log(self) -> None:
        self.end_gpu()
        if self._seen:
            self.logs += 1
            self._seen = []
            self._t_s += 0.0 if self.dated else self.every_s

    def _begin_gpu(self, pci: str) -> None:
        pci = smi_words.pci_id(pci)
        if pci in self._seen:
            self._next_log()
        if len(self._seen) < MAX_GPUS:
            self._seen.append(pci)
            self._gpu = pci

    def _leaf(self, line: str, text: str) -> None:
        indent = len(line) - len(line.lstrip())
        match = _LEAF.fullmatch(text)
        if match is None:
            self._tree.branch(indent, text)
        else:
            self._tree.leaf(indent, match["name"], (match["value"] or "").strip())

    def _front(self, line: str, text: str) -> None:
        failed = smi_words.failed_gpu(text, self._t_s)
        if failed is not None:
            self.facts.append(failed)
            return
        match = _LEAF.fullmatch(text)
        name, value = (match["name"], (match["value"] or "").strip()) if match else ("", "")
        if name == "Timestamp":
            wall = stamps.wall_s(value)
            if wall is not None:
                self.dated, self._t_s = True, wall
        elif name == "Driver Version":
            self._driver = clean(value, 40)
        elif name == "Attached GPUs":
            self._attached = int(value) if value.isdecimal() and len(value) < 5 else 0
        elif name not in ("CUDA Version",) and not text.startswith("="):
            self.doubts.add("line that is not understood", line)

    def end_gpu(self) -> None:
        """Turn what was gathered of one GPU into rows."""
        if not self._gpu:
            return
        tree, pci = self._tree, self._gpu
        self._tree, self._gpu = Tree(), ""
        # One GPU of several (-i) does not say which; all of them come in the driver's order.
        whole = self._attached > 0
        gpu = GpuId(
            uuid=clean(tree.text("GPU UUID"), 64),
            pci=pci,
            index=len(self._seen) - 1 if whole else None,
            name=clean(tree.text("Product Name"), 80),
        )
        values = gpu_values(tree)
        values[Gpu.pci_bus_id] = pci
        if self._driver:
            values[Gpu.driver] = self._driver
        if whole:
            values[Gpu.index] = len(self._seen) - 1
        self.facts.append(Fact(Gpu, self._t_s, values, gpu))
        health = health_values(tree)
        if health:
            self.facts.append(Fact(GpuHealth, self._t_s, health, gpu))
        self.facts.extend(process_facts(tree, gpu, self._t_s))
