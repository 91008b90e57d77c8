"""The one place where numbers become text. Every unit that a metric may declare is listed here."""

from __future__ import annotations

from bottletop.model import Absent, Value

UNITS = frozenset(
    {"", "%", "W", "MHz", "C", "B", "B/s", "s", "ms", "us", "ns", "mJ", "1/s", "cores"}
)

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
MISSING = "–"


def bytes_text(value: float) -> str:
    """`1536` -> `1.5 KiB`. Binary steps, as every GPU tool prints memory."""
    size, step = float(value), 0
    while abs(size) >= 1024 and step < len(_BINARY) - 1:
        size /= 1024
        step += 1
    return (
        f"{size:.0f} {_BINARY[step]}" if step == 0 or size >= 100 else f"{size:.1f} {_BINARY[step]}"
    )


def seconds_text(value: float) -> str:
    """Durations at three significant figures: `850 ns`, `41.2 ms`, `3.1 s`, `4m05s`, `2h03m`."""
    size = abs(value)
    if size == 0:
        return "0 s"
    if size < 1e-6:
        return f"{value * 1e9:.0f} ns"
    if size < 1e-3:
        return f"{_three(value * 1e6)} us"
    if size < 1:
        return f"{_three(value * 1e3)} ms"
    if size < 120:
        return f"{_three(value)} s"
    minutes, seconds = divmod(round(size), 60)
    if minutes < 120:
        return f"{minutes}m{seconds:02d}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m"


def age_text(seconds: float) -> str:
    """How long something has been going on, in whole seconds: `41 s`, `4m05s`, `2h03m`."""
    whole = max(0, round(seconds))
    return f"{whole} s" if whole < 120 else seconds_text(whole)


def percent_text(share: float | None) -> str:
    """A share of 0 to 1 as whole percent: `72 %`."""
    return MISSING if share is None else f"{round(share * 100)} %"


def _three(value: float) -> str:
    size = abs(value)
    return f"{value:.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def number_text(value: float) -> str:
    """A bare count or ratio: whole numbers plain, others at three significant figures."""
    if isinstance(value, int) or float(value).is_integer():
        return f"{value:.0f}"
    return _three(value)


def value_text(value: Value | None, unit: str) -> str:
    """Format any value with its unit; what is absent becomes a dash, never a zero."""
    if value is None or isinstance(value, Absent):
        return MISSING
    if isinstance(value, str):
        return value
    if unit == "%":
        return (
            f"{value:.0f} %" if abs(value) >= 10 or float(value).is_integer() else f"{value:.1f} %"
        )
    if unit in ("B", "B/s"):
        return bytes_text(value) + unit[1:]
    if unit == "s":
        return seconds_text(value)
    if unit in ("ms", "us", "ns"):
        return seconds_text(value / {"ms": 1e3, "us": 1e6, "ns": 1e9}[unit])
    if unit == "C":
        return f"{value:.0f} °C"
    return f"{number_text(value)} {unit}".rstrip()
