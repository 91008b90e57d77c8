"""Packaging guards: nothing is left out of the wheel, and light commands stay light."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LINKED = ("collectors", "rules", "tui")


def test_every_package_folder_is_listed() -> None:
    conf = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    found = set()
    for name, folder in conf["package-dir"].items():
        base = ROOT / folder
        for init in base.rglob("__init__.py"):
            relative = init.parent.relative_to(base)
            if not any((base / part).is_symlink() for part in (relative, *relative.parents)):
                found.add(".".join((name, *relative.parts)))
    assert found == set(conf["packages"])


def test_links_point_home() -> None:
    for name in LINKED:
        link = ROOT / "src" / "bottletop" / name
        assert link.is_symlink()
        assert link.resolve() == ROOT / name


def test_constraints_name_no_address() -> None:
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert line.startswith("#") or line.count("==") == 1, line
        assert "://" not in line


@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["report", "--for", "1s", "--json"],
        ["record", "--for", "1s", "-o", "x.btrec"],
    ],
    ids=["version", "report", "record"],
)
def test_commands_without_a_screen_load_no_screen(arguments: list[str], tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from bottletop.cli import main\n"
        "try:\n"
        f"    main({arguments!r})\n"
        "except SystemExit:\n"
        "    pass\n"
        "heavy = {'textual', 'rich', 'plotext', 'torch', 'numpy'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
