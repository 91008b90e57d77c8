"""The string table: every name and free text of a recording once, under a number."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from bottletop.session import schema
from bottletop.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

REMEMBERED = 65_536
"""Texts held in memory; beyond, all are forgotten and those still in use stored once more."""


class Interner:
    """Gives texts numbers, 0 for the empty one, and keeps the new ones until they are written."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": 0}
        self._next = 1
        self.new: list[tuple[int, str]] = []

    def __call__(self, text: str) -> int:
        number = self._numbers.get(text)
        return self._add(text) if number is None else number

    def many(self, texts: Sequence[str]) -> list[int]:
        """The numbers of several texts."""
        numbers = list(map(self._numbers.get, texts))
        # Hardly ever is one new: the loop in Python is for those times.
        return [self(text) for text in texts] if None in numbers else numbers  # type: ignore

    def _add(self, text: str) -> int:
        if len(self._numbers) >= REMEMBERED:
            self._numbers = {"": 0}
        number = self._numbers[text] = self._next
        self._next += 1
        self.new.append((number, storable(text)))
        return number


def storable(text: str) -> str:
    """`text` as UTF-8 can hold it, at most `schema.MAX_TEXT_CHARS` long."""
    if len(text) > schema.MAX_TEXT_CHARS:
        text = text[: schema.MAX_TEXT_CHARS - 1] + "…"
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def readable(text: str) -> str:
    """A text from a file, safe to show; unchanged when it was safe already."""
    if text.isascii() and text.isprintable():
        return text[: schema.MAX_TEXT_CHARS]
    return clean(text, schema.MAX_TEXT_CHARS)


class StoredTexts:
    """Looks texts up in a file as they are needed. Memory is bounded."""

    def __init__(self, fetch: Callable[[int], str | None]) -> None:
        self._fetch = fetch
        self._texts = {0: ""}

    def text(self, number: int) -> str:
        """The text with that id, empty for 0. Raises LookupError."""
        text = self._texts.get(number)
        if text is None:
            text = self._load(number)
        return text

    def _load(self, number: int) -> str:
        try:
            raw = self._fetch(number)
        except (sqlite3.Error, OverflowError):
            raw = None
        if raw is None:
            raise LookupError(f"no text {number}")
        if len(self._texts) >= REMEMBERED:
            self._texts = {0: ""}
        text = self._texts[number] = readable(raw)
        return text
