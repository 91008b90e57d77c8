"""Configuration: read, validated, and refused with the place of the mistake."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest
from hosttree.unprivileged import unprivileged

from bottletop.config import ConfigError, default_path, load

if TYPE_CHECKING:
    from pathlib import Path


def test_thresholds_are_read_by_code_and_name(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("[rules.gpu-starved-cpu]\ngap = 0.25\n[rules.disk-saturated]\nqueue = 8\n")
    assert load(path) == {"gpu-starved-cpu": {"gap": 0.25}, "disk-saturated": {"queue": 8}}


def test_no_file_is_an_empty_configuration(tmp_path: Path) -> None:
    assert load(tmp_path / "none.toml") == {}
    with pytest.raises(ConfigError, match="no such file"):
        load(tmp_path / "none.toml", required=True)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("[rules.x]\ngap = \nq = 1\n", "line 2"),
        ("[colours]\na = 1\n", r"unknown section \[colours\]"),
        ("rules = 3\n", "must be sections"),
        ("[rules]\nx = 1\n", "must be a section"),
        ("[rules.x]\ngap = 'a lot'\n", "gap = 'a lot' is not a finite number"),
        ("[rules.x]\ngap = true\n", "not a finite number"),
        ("[rules.x]\ngap = inf\n", "not a finite number"),
    ],
)
def test_mistakes_name_their_place(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=complaint) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_a_folder_closed_to_us_holds_nothing_of_ours(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "config.toml").write_text("[rules.x]\ngap = 1\n")
    folder.chmod(0)
    try:
        assert unprivileged(lambda: load(folder / "config.toml")) == {}
    finally:
        folder.chmod(0o700)


def test_a_file_of_ours_that_is_closed_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.toml"
    path.touch()

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(type(path), "open", refuse)
    with pytest.raises(ConfigError, match="Permission denied"):
        load(path)


def test_binary_rubbish_and_giants_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError):
        load(path)
    path.write_bytes(b"#" * 1_000_000)
    with pytest.raises(ConfigError, match="larger than"):
        load(path)


def test_the_default_path_follows_xdg() -> None:
    assert str(default_path({"XDG_CONFIG_HOME": "/x"})) == "/x/bottletop/config.toml"
    assert str(default_path({"HOME": "/h"})) == "/h/.config/bottletop/config.toml"
