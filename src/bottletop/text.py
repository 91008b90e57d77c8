"""Text from outside is hostile; this is the one place where it is made safe to store and show."""

from __future__ import annotations

import re
import textwrap
import unicodedata

# C0 and C1 controls, DEL, bidirectional controls, zero-width and line separators, and surrogates
# (undecodable bytes read with surrogateescape): any of them can move the cursor, reverse the rest
# of a line or end the encoder.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]+"
)

MAX_CHARS = 512

_NUMBER = re.compile(r"\(?[+-]?\d[\d.,]*")
_UNIT = re.compile(r"(%|°C|[num]?s|h|[kMG]?W|[kMG]Hz|([KMGT]i?|[kMGT])?B(/s)?)[).,;:]*")

# Latin, punctuation, arrows, box drawing, blocks and braille: one cell each, none combining.
# Screens measure thousands of such strings a second.
_NARROW = re.compile(
    "[\x20-\x7e\u00a0-\u02ff\u2010-\u2027\u2190-\u2319\u2500-\u25fc\u2800-\u28ff]*"
)


def clean(raw: str | bytes, limit: int = MAX_CHARS) -> str:
    """Return `raw` without anything that could act on a terminal, at most `limit` characters.

    Bytes are decoded as UTF-8; what does not decode becomes U+FFFD. Runs of unsafe characters
    become one space, so that words do not merge. A cut text ends in an ellipsis.
    """
    if isinstance(raw, bytes):
        raw = raw[: limit * 4 + 4].decode("utf-8", "replace")
    elif len(raw) > limit * 4:
        raw = raw[: limit * 4]
    safe = raw if raw.isascii() and raw.isprintable() else _UNSAFE.sub(" ", raw)
    safe = safe.strip()
    return safe if len(safe) <= limit else safe[: limit - 1] + "…"


def words(value: str) -> list[str]:
    """The words of a text, a number and its unit (`28 %`, `3.1 s`) together as one."""
    found: list[str] = []
    for word in value.split():
        if found and _UNIT.fullmatch(word) and _NUMBER.fullmatch(found[-1]):
            found[-1] += f" {word}"
        else:
            found.append(word)
    return found


def wrap(content: str, width: int, lead: str = "", under: str = "") -> str:
    """`content` in lines of at most `width`, the first after `lead`, the others after `under`.

    Words stay whole: a command that is cut cannot be copied.
    """
    return textwrap.fill(
        content,
        width,
        initial_indent=lead,
        subsequent_indent=under,
        break_long_words=False,
        break_on_hyphens=False,
    )


def cell_width(value: str) -> int:
    """Return how many terminal cells `value` takes: 2 for wide and full-width, 0 for combining."""
    if value.isascii() or _NARROW.fullmatch(value):
        return len(value)
    width = 0
    for char in value:
        if unicodedata.combining(char):
            continue
        width += 2 if unicodedata.east_asian_width(char) in "WF" else 1
    return width


def fit(value: str, width: int, *, right: bool = False) -> str:
    """Pad or cut `value` to exactly `width` cells; a cut text ends in an ellipsis."""
    if width <= 0:
        return ""
    size = cell_width(value)
    if size > width:
        kept, used = [], 0
        for char in value:
            step = cell_width(char)
            if used + step > width - 1:
                break
            kept.append(char)
            used += step
        value = "".join(kept) + "…"
        size = used + 1
    pad = " " * (width - size)
    return pad + value if right else value + pad
