"""Themes: colour says severity and nothing else; everything else is a shade of the foreground.

The severity hues are told apart by people who do not see red and green apart (vermilion, amber,
blue), and each comes with a sign of its own.
"""

from __future__ import annotations

from textual.theme import Theme

DARK = Theme(
    name="bottletop",
    primary="#7d9fc0",
    secondary="#5f7d99",
    accent="#7d9fc0",
    warning="#e3a53c",
    error="#f0654f",
    success="#62b58f",
    foreground="#cdd5dd",
    background="#0f1318",
    surface="#0f1318",
    panel="#171d24",
    dark=True,
    variables={
        "bt-strong": "#eef2f6",
        "bt-dim": "#8a95a1",
        "bt-faint": "#3f4954",
        "bt-data": "#7d9fc0",
        "bt-advice": "#5fa8e0",
        "bt-cursor": "#1f2832",
        "bt-band": "#171d24",
        "bt-band-warn": "#2a2316",
        "bt-band-crit": "#2d1a18",
        "bt-ink-on-badge": "#0f1318",
        "border": "#3f4954",
        "border-blurred": "#3f4954",
        "input-selection-background": "#2f4358",
        "block-cursor-background": "#1f2832",
    },
)

LIGHT = Theme(
    name="bottletop-light",
    primary="#3d6a96",
    secondary="#5f7d99",
    accent="#3d6a96",
    warning="#925f00",
    error="#bd2f1a",
    success="#1f7a4d",
    foreground="#2a3037",
    background="#fafaf7",
    surface="#fafaf7",
    panel="#eeeeea",
    dark=False,
    variables={
        "bt-strong": "#0b0f14",
        "bt-dim": "#66707a",
        "bt-faint": "#c3c8cc",
        "bt-data": "#47739e",
        "bt-advice": "#0a63b0",
        "bt-cursor": "#e3e8ec",
        "bt-band": "#eeeeea",
        "bt-band-warn": "#f7ecd2",
        "bt-band-crit": "#f9e0db",
        "bt-ink-on-badge": "#fafaf7",
        "border": "#c3c8cc",
        "border-blurred": "#c3c8cc",
        "input-selection-background": "#c8d8e8",
        "block-cursor-background": "#e3e8ec",
    },
)

ANSI = Theme(
    name="bottletop-ansi",
    ansi=True,
    primary="ansi_blue",
    secondary="ansi_cyan",
    accent="ansi_cyan",
    warning="ansi_yellow",
    error="ansi_red",
    success="ansi_green",
    foreground="ansi_default",
    background="ansi_default",
    surface="ansi_default",
    panel="ansi_default",
    boost="ansi_default",
    dark=True,
    variables={
        "ansi-background": "ansi_black",
        "ansi-foreground": "ansi_white",
        "bt-strong": "ansi_default",
        "bt-dim": "ansi_default",
        "bt-faint": "ansi_default",
        "bt-data": "ansi_cyan",
        "bt-advice": "ansi_blue",
        "bt-cursor": "ansi_default",
        "bt-band": "ansi_default",
        "bt-band-warn": "ansi_default",
        "bt-band-crit": "ansi_default",
        "bt-ink-on-badge": "ansi_default",
        "border": "ansi_default",
        "border-blurred": "ansi_default",
        "input-cursor-background": "ansi_white",
        "input-cursor-foreground": "ansi_black",
        "input-selection-background": "ansi_blue",
    },
)
"""The terminal's own colours and ground: for 16 colours, NO_COLOR and those who like it."""

THEMES = (DARK, LIGHT, ANSI)
NAMES = {"dark": DARK.name, "light": LIGHT.name, "ansi": ANSI.name}


def choose(wanted: str, *, no_color: bool, colors: int) -> str:
    """Name of the theme to use: `wanted` is "auto" or a key of `NAMES`. Raises ValueError.

    Without colour, and on terminals of 16 colours or fewer, only the ANSI theme is honest: others
    would be rounded to whatever is nearest, grey on black included.
    """
    if wanted not in ("auto", *NAMES):
        raise ValueError(f"no theme named {wanted!r}: one of auto, {', '.join(NAMES)}")
    if no_color or wanted == "ansi" or (wanted == "auto" and colors <= 16):
        return ANSI.name
    return NAMES.get(wanted, DARK.name)


def terminal_colors(term: str, colorterm: str) -> int:
    """How many colours the terminal says it has: 16 where it says nothing."""
    if colorterm in ("truecolor", "24bit"):
        return 1 << 24
    return 256 if "256color" in term or "kitty" in term or "direct" in term else 16
