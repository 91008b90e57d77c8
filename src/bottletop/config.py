"""User configuration: `~/.config/bottletop/config.toml`, thresholds of rules and nothing else yet.

[rules.gpu-starved-cpu]
gap = 0.25
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_CONFIG_BYTES = 256 * 1024


class ConfigError(Exception):
    """The configuration file cannot be used; the message names the file and the place."""


def default_path(environ: Mapping[str, str]) -> Path:
    """Where the configuration is looked for: `$XDG_CONFIG_HOME` or `~/.config`."""
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", "/"), ".config")
    return Path(base) / "bottletop" / "config.toml"


def load(path: Path, *, required: bool = False) -> dict[str, dict[str, float]]:
    """Read rule thresholds by code and name; an absent file is an empty configuration.

    So is one in a folder closed to us, such as the home of root that `su` and `setpriv` leave in
    HOME. Raises `ConfigError` when the file is unreadable, not TOML, has unknown sections, or a
    threshold is not a finite number.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_CONFIG_BYTES + 1)
    except FileNotFoundError:
        if required:
            raise ConfigError(f"{path}: no such file") from None
        return {}
    except OSError as error:
        if isinstance(error, PermissionError) and not required and not os.path.exists(path):
            return {}
        raise ConfigError(f"{path}: {error.strerror}") from None
    if len(raw) > MAX_CONFIG_BYTES:
        raise ConfigError(f"{path}: larger than {MAX_CONFIG_BYTES} bytes")
    import tomllib  # there is seldom a file to read

    try:
        parsed = tomllib.loads(raw.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    return _rule_sections(path, parsed)


def _rule_sections(path: Path, parsed: dict[str, object]) -> dict[str, dict[str, float]]:
    for section in parsed:
        if section != "rules":
            raise ConfigError(f"{path}: unknown section [{section}]; known: [rules.CODE]")
    rules = parsed.get("rules", {})
    if not isinstance(rules, dict):
        raise ConfigError(f"{path}: rules must be sections, [rules.CODE]")
    thresholds: dict[str, dict[str, float]] = {}
    for code, values in rules.items():
        if not isinstance(values, dict):
            raise ConfigError(f"{path}: [rules] {code} must be a section, [rules.{code}]")
        thresholds[code] = {
            name: _number(path, code, name, value) for name, value in values.items()
        }
    return thresholds


def _number(path: Path, code: str, name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value - value != 0:
        raise ConfigError(f"{path}: [rules.{code}] {name} = {value!r} is not a finite number")
    return value
