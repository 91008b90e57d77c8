"""Inks: the few ways in which text is painted, as names that lines carry.

An ink is joined with the background of the widget it is painted on, as a Segment without one shows
the terminal's. Colours come from theme variables alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rich.style import Style
from textual.color import Color

from bottletop.model import Severity, VerdictState

if TYPE_CHECKING:
    from collections.abc import Mapping


class Ink(NamedTuple):
    """Foreground and background are names of theme variables; None keeps the widget's own."""

    foreground: str | None = None
    background: str | None = None
    bold: bool = False
    dim: bool = False
    """Used where the theme has no shades of its own (ANSI)."""
    reverse: bool = False
    """Used where the theme has no background shades of its own (ANSI)."""
    underline: bool = False


INKS: Mapping[str, Ink] = {
    "text": Ink(),
    "strong": Ink("bt-strong", bold=True),
    "dim": Ink("bt-dim", dim=True),
    "faint": Ink("bt-faint", dim=True),
    "title": Ink("bt-dim", bold=True),
    "title-focus": Ink("bt-strong", bold=True, underline=True),
    "data": Ink("bt-data"),
    "ok": Ink("success"),
    "info": Ink("bt-dim", dim=True),
    "advice": Ink("bt-advice"),
    "warn": Ink("warning", bold=True),
    "crit": Ink("error", bold=True),
    "key": Ink("bt-strong", bold=True),
    "on-cursor": Ink(None, "bt-cursor", reverse=True),
    "on-badge": Ink("bt-ink-on-badge", "bt-dim", bold=True, reverse=True),
    "on-badge-dim": Ink("bt-ink-on-badge", "bt-dim", bold=True, reverse=True),
    "on-badge-ok": Ink("bt-ink-on-badge", "success", bold=True, reverse=True),
    "on-badge-advice": Ink("bt-ink-on-badge", "bt-advice", bold=True, reverse=True),
    "on-badge-warn": Ink("bt-ink-on-badge", "warning", bold=True, reverse=True),
    "on-badge-crit": Ink("bt-ink-on-badge", "error", bold=True, reverse=True),
}

SEVERITY_INKS: Mapping[Severity, str] = {
    Severity.INFO: "info",
    Severity.ADVICE: "advice",
    Severity.WARN: "warn",
    Severity.CRIT: "crit",
}

STATE_INKS: Mapping[VerdictState, str] = {
    VerdictState.BOTTLENECK: "warn",
    VerdictState.MIXED: "warn",
    VerdictState.CLEAR: "ok",
    VerdictState.NO_DEMAND: "dim",
    VerdictState.CANNOT_TELL: "dim",
}


class Inks:
    """Inks of one widget, made when first used. Made anew when the widget's style changes."""

    def __init__(self, ground: Style, variables: Mapping[str, str], *, ansi: bool) -> None:
        self._ground = ground
        self._variables = variables
        self._ansi = ansi
        self._styles: dict[str, Style] = {}

    def __getitem__(self, name: str) -> Style:
        style = self._styles.get(name)
        if style is None:
            style = self._styles[name] = self._ground + self._style(name)
        return style

    def _style(self, name: str) -> Style:
        if name.startswith("on-cursor "):
            ink = INKS[name.removeprefix("on-cursor ")]
            if self._ansi:
                # Reversed colours would make a patchwork of the row: its signs are enough.
                return Style(bold=ink.bold or None, reverse=True)
            return self._style(name.removeprefix("on-cursor ")) + self._style("on-cursor")
        ink = INKS[name]
        # The terminal's own ground shows through as the text of what is reversed.
        reversed_ = self._ansi and ink.reverse
        return Style(
            color=self._color(ink.background if reversed_ else ink.foreground),
            bgcolor=self._color(None if reversed_ else ink.background),
            bold=ink.bold or None,
            dim=(ink.dim and self._ansi) or None,
            reverse=reversed_ or None,
            underline=ink.underline or None,
        )

    def _color(self, variable: str | None):  # type: ignore[no-untyped-def]
        if variable is None:
            return None
        return Color.parse(self._variables[variable]).rich_color
