"""Whatever a process calls itself, nothing of it can act on a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bottletop.text import cell_width, clean, fit, words


@pytest.mark.parametrize(
    ("raw", "safe"),
    [
        ("python serve.py", "python serve.py"),
        ("a\x1b]0;owned\x07b", "a ]0;owned b"),
        ("\x1b[2J\x1b[Hroot#", "[2J [Hroot#"),
        ("evil\u202egnp.exe", "evil gnp.exe"),
        ("two\nlines\r\n", "two lines"),
        (b"caf\xc3\xa9 \xff", "café �"),
        ("lone \udc80 surrogate", "lone   surrogate"),
        ("zero\u200bwidth", "zero width"),
        ("a[/b]c", "a[/b]c"),
        ("日本", "日本"),
    ],
)
def test_clean(raw: str | bytes, safe: str) -> None:
    assert clean(raw) == safe


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        ("idle 62 % of", ["idle", "62 %", "of"]),
        ("took (3.1 s) a", ["took", "(3.1 s)", "a"]),
        ("4 GiB, 10 MB/s.", ["4 GiB,", "10 MB/s."]),
        ("8 s", ["8 s"]),
        ("GPU 0 is", ["GPU", "0", "is"]),
        ("a % b", ["a", "%", "b"]),
    ],
)
def test_a_number_and_its_unit_are_one_word(value: str, parts: list[str]) -> None:
    assert words(value) == parts


def test_clean_bounds_what_it_returns() -> None:
    assert clean("x" * 10_000_000, 20) == "x" * 19 + "…"
    assert len(clean(b"\xf0\x9f\x98\x80" * 100_000, 50)) == 50


@given(st.one_of(st.text(), st.binary()))
def test_clean_leaves_nothing_unprintable(raw: str | bytes) -> None:
    safe = clean(raw)
    safe.encode("utf-8")
    assert not any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 for char in safe)


@given(st.text(max_size=40), st.integers(0, 30), st.booleans())
def test_fit_is_exactly_as_wide_as_asked(raw: str, width: int, right: bool) -> None:
    assert cell_width(fit(clean(raw), width, right=right)) == width
