"""Time stamps as tools and people write them, as seconds on one axis.

Logs hardly ever name their time zone. A stamp is taken as UTC: files of one host then still lie
right beside each other, and only the date shown with a finding may be off by the zone.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

DAY_S = 86_400.0
_FORMATS = (
    "%Y/%m/%d %H:%M:%S",
    "%Y-%m-%d %H:%M:%S",
    "%Y%m%d %H:%M:%S",
    "%m/%d/%Y %H:%M:%S",
    "%d/%m/%Y %H:%M:%S",
    "%a %b %d %H:%M:%S %Y",
)
_USUAL = re.compile(
    r"\s*(\d{4})[/-]?(\d{2})[/-]?(\d{2})\s+(\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9}))?\s*", re.ASCII
)
_FRACTION = re.compile(r"^(?P<whole>.*\d{1,2}:\d{2}:\d{2})[.,](?P<digits>\d{1,9})(?P<rest>.*)$")
_ZONE = re.compile(r"\s*(?P<sign>[+-])(?P<h>\d{2}):?(?P<m>\d{2})$")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2}):(\d{2})(?:[.,](\d{1,9}))?")
_EPOCH = ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3), (1e8, 1.0))
"""A number at least this large counts since 1970, in this unit."""
_LATEST_S = 4_102_444_800.0
"""2100: a number that comes out later is no date."""


def wall_s(raw: str) -> float | None:
    """Seconds since 1970 of a date with a time, of ISO 8601, or of a large number; else None."""
    usual = _USUAL.fullmatch(raw)
    if usual is not None:
        return _usual_s(*usual.groups())
    text = raw.strip().strip('"').replace("T", " ", 1) if raw[:1].isdigit() else raw.strip()
    number = plain_number(text)
    if number is not None:
        return epoch_s(number)
    fraction = 0.0
    match = _FRACTION.match(text)
    if match:
        fraction = float(f"0.{match['digits']}")
        text = match["whole"] + match["rest"]
    shift = timedelta()
    text = text.removesuffix("Z").removesuffix(" UTC").strip()
    zone = _ZONE.search(text)
    if zone and ":" in text[: zone.start()]:
        shift = timedelta(hours=int(zone["h"]), minutes=int(zone["m"]))
        shift = -shift if zone["sign"] == "-" else shift
        text = text[: zone.start()]
    for form in _FORMATS:
        try:
            found = datetime.strptime(" ".join(text.split()), form).replace(tzinfo=UTC)
            return (found - shift).timestamp() + fraction
        except (ValueError, OverflowError):
            continue
    return None


def _usual_s(*parts: str | None) -> float | None:
    """nvidia-smi's own way of writing a date, at a tenth of the cost of trying all others."""
    year, month, day, hour, minute, second = (int(part or 0) for part in parts[:6])
    try:
        date = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    return date.timestamp() + float(f"0.{parts[6] or 0}")


def epoch_s(number: float) -> float | None:
    """Seconds since 1970 of a count of s, ms, us or ns since then; None of a smaller number."""
    for least, scale in _EPOCH:
        if least <= number and number * scale <= _LATEST_S:
            return number * scale
    return None


def clock_s(raw: str) -> float | None:
    """Seconds since midnight of "13:54:35" or "13:54:35.120"; None of anything else."""
    match = _CLOCK.fullmatch(raw.strip())
    if match is None:
        return None
    hours, minutes, seconds = int(match[1]), int(match[2]), int(match[3])
    if hours > 23 or minutes > 59 or seconds > 60:
        return None
    return hours * 3600.0 + minutes * 60 + seconds + float(f"0.{match[4] or 0}")


def period_s(times: Sequence[float]) -> float | None:
    """The usual distance of moments in ascending order; None of fewer than two."""
    steps = [after - before for before, after in pairwise(times)]
    steps = [step for step in steps if step > 0]
    return median(steps) if steps else None


def plain_number(text: str) -> float | None:
    """A plain number, None of anything else and of NaN."""
    try:
        found = float(text)
    except ValueError:
        return None
    return found if found == found else None
