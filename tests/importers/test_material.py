"""Files as people send them: any encoding, any line ends, cut, huge, or no text at all."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from bottletop.importers import NotImportable, load, material
from bottletop.importers.base import MAX_BYTES, MAX_LINE_CHARS

if TYPE_CHECKING:
    from pathlib import Path

TEXT = "index, power.draw [W]\n0, 42.50 W\n"


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"]
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_encoding_gives_the_same_lines(encoding: str, end: str) -> None:
    raw = TEXT.replace("\n", end).encode(encoding)
    assert material("a", raw).lines[:2] == ("index, power.draw [W]", "0, 42.50 W")


def test_latin_1_and_a_cut_last_character_are_read() -> None:
    assert "Temp [°C]" in material("a", "Temp [°C]\n1\n".encode("latin-1")).lines
    assert material("a", "ok\n°".encode()[:-1]).lines[0] == "ok"


def test_a_huge_file_is_read_in_part_and_says_so() -> None:
    found = material("a", b"0, 1 W\n" * (MAX_BYTES // 7 + 2))
    assert found.cut
    assert found.lines[-1] == "0, 1 W"


def test_a_long_line_is_bounded() -> None:
    assert len(material("a", b"x" * 100_000).lines[0]) == MAX_LINE_CHARS


@pytest.mark.parametrize("raw", [b"", b"\n \r\n", b"\x00" * 50, bytes(range(256)) * 4 + b"\0" * 99])
def test_what_is_no_text_is_refused(raw: bytes) -> None:
    with pytest.raises(NotImportable, match=r"a\.bin: (empty|not text)"):
        material("a.bin", raw)


def test_folders_pipes_and_missing_files_are_refused_in_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, why in (
        (tmp_path, "folder"),
        (tmp_path / "none", "No such file"),
        (tmp_path / "pipe", "not a regular file"),
        (tmp_path / "a\0b", "null"),
    ):
        with pytest.raises(NotImportable, match=why) as caught:
            load(path)
        assert "\n" not in str(caught.value)


def test_a_hostile_file_name_is_cleaned(tmp_path: Path) -> None:
    path = tmp_path / "\x1b[2Jevil\n.csv"
    path.write_text(TEXT)
    assert load(path).name.isprintable()
