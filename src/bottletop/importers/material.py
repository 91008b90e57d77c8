"""Opens foreign files: bounded, in any encoding people paste logs in."""

from __future__ import annotations

import codecs
import os
from typing import TYPE_CHECKING

from bottletop.importers.base import MAX_BYTES, MAX_LINE_CHARS, Material, NotImportable
from bottletop.text import clean

if TYPE_CHECKING:
    from pathlib import Path

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def load(path: Path) -> Material:
    """Read a regular file as text. Raises `NotImportable` with one line that names the file."""
    name = clean(path.name, 80) or "?"
    try:
        # A pipe or a device would keep us waiting; a link to a file is as good as the file.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not os.path.isfile(path):
                raise NotImportable(f"{clean(str(path))}: not a regular file")
            raw = file.read(MAX_BYTES + 1)
    except IsADirectoryError:
        raise NotImportable(f"{clean(str(path))}: a folder; name the files in it") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise NotImportable(f"{clean(str(path))}: {reason or error}") from None
    return material(name, raw)


def material(name: str, raw: bytes) -> Material:
    """Text of `raw` as lines. Raises `NotImportable` where it is no text at all."""
    cut = len(raw) > MAX_BYTES
    text = decode(raw[:MAX_BYTES])
    if not text.strip("\x00 \t\r\n"):
        raise NotImportable(f"{name}: empty")
    if text.count("\x00") > len(text) // 20:
        raise NotImportable(f"{name}: not text")
    # Terminals and pagers leave carriage returns and form feeds; other separators are not ends.
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if cut:
        lines.pop()
    return Material(name, tuple(line[:MAX_LINE_CHARS] for line in lines), cut)


def decode(raw: bytes) -> str:
    """Text in the encoding that its mark or its zero bytes give away, else UTF-8, else Latin-1.

    PowerShell writes UTF-16 with a mark, some of its tools without.
    """
    for mark, encoding in _MARKS:
        if raw.startswith(mark):
            return raw[len(mark) :].decode(encoding, "replace")
    sample = raw[:4096]
    for start, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
        half = sample[start::2]
        if len(half) >= 4 and half.count(0) > 0.8 * len(half) and sample.count(0) < 0.6 * len(raw):
            return raw.decode(encoding, "replace")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        # A cut last character is not a reason to take the whole for another encoding.
        if error.start >= len(raw) - 4:
            return raw.decode("utf-8", "replace")
        return raw.decode("latin-1")
