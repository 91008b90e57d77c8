"""What py-spy prints in its "raw" format: one stack a line, outermost frame first, and a count.

    process 7:"python x.py";thread (7): MainThread;<module> (x.py:1);loop (x.py:6) 26

Names in it are the target's own and may hold anything, so lines are taken apart from the right.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_LINES = 20_000
MAX_FRAMES = 512
_FRAME = re.compile(r"(?P<function>.*) \((?P<file>[^()]*?)(?::(?P<line>\d+))?\)\Z", re.DOTALL)
_LIBRARY = re.compile(r".*/(?:site-packages|dist-packages|lib/python3\.\d+(?:\.zip)?)/")
_THREAD = re.compile(r"thread \((?P<tid>0x[0-9A-Fa-f]+|\d+)\)(?:: ?(?P<name>.*))?\Z", re.DOTALL)


class Frame(NamedTuple):
    """One frame: its function, with its class where the sampler tells it, and its file."""

    function: str
    file: str
    """Within its package or the standard library; of the program itself, its last two parts."""
    library: bool = False
    """It is of a package or of Python, not of the program."""

    @property
    def name(self) -> str:
        """The function without its class."""
        return self.function.rpartition(".")[2] or self.function


class Stack(NamedTuple):
    """A stack of one thread, and in how many samples it was seen."""

    tid: int
    thread: str
    frames: tuple[Frame, ...]
    """Outermost first."""
    samples: int


def stacks(printed: str) -> list[Stack]:
    """Every stack that was printed; lines that are none are passed over."""
    found: list[Stack] = []
    for line in printed.splitlines()[:MAX_LINES]:
        stack = _stack(line)
        if stack is not None:
            found.append(stack)
    return found


def _shortened(path: str) -> tuple[str, bool]:
    """A file's path as the table of stages writes it, and whether it is a library's."""
    found = _LIBRARY.search(path)
    if found:
        return path[found.end() :], True
    return "/".join(path.split("/")[-2:]), path.startswith("<")


def _stack(line: str) -> Stack | None:
    body, _, count = line.rpartition(" ")
    if not count.isdigit() or len(count) > 9:
        return None
    tid, thread = 0, ""
    frames: list[Frame] = []
    for part in body.split(";")[: MAX_FRAMES + 2]:
        match = _THREAD.match(part)
        if match and not frames:
            tid, thread = int(match["tid"], 0), match["name"] or ""
            continue
        frame = _FRAME.match(part)
        if frame:
            frames.append(Frame(frame["function"], *_shortened(frame["file"])))
    return Stack(tid, thread, tuple(frames), int(count)) if frames else None
