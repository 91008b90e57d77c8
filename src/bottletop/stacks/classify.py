"""Which stage a stack belongs to, by the table `stages.toml`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import translate
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from bottletop.text import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bottletop.stacks.raw import Frame

MAX_NAME = 48


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of the table."""

    stage: str
    file: re.Pattern[str] | None
    function: re.Pattern[str] | None
    own: bool = False
    """Only functions of the program itself."""
    waits: bool = False
    last: bool = False
    """Tried only when no other entry matches any frame."""

    def matches(self, frame: Frame) -> bool:
        if self.own and frame.library:
            return False
        if self.file is not None and not self.file.match(frame.file):
            return False
        return self.function is None or self.function.fullmatch(frame.name) is not None


class Found(NamedTuple):
    """The stage of a stack."""

    stage: str
    waits: bool
    """The thread has nothing to do."""
    known: bool
    """A rule named it; else it is called after the program's innermost own function."""


@cache
def rules() -> tuple[Rule, ...]:
    """The table, in its order."""
    # Imported where the table is read: only a target with a stack needs it.
    import tomllib
    from importlib import resources

    text = (resources.files("bottletop.stacks") / "stages.toml").read_text("utf-8")
    return tuple(_rule(entry) for entry in tomllib.loads(text)["frames"])


def _rule(entry: dict[str, object]) -> Rule:
    files, function = entry.get("file"), entry.get("function")
    pattern = "|".join(translate(one) for one in str(files).split("|")) if files else None
    return Rule(
        stage=str(entry["stage"]),
        file=re.compile(pattern) if pattern else None,
        function=re.compile(str(function)) if function else None,
        own=bool(entry.get("own")),
        waits=bool(entry.get("waits")),
        last=bool(entry.get("last")),
    )


def classify(frames: Sequence[Frame]) -> Found:
    """The stage of a stack whose outermost frame comes first.

    The innermost frame that a rule knows decides; below that, what the thread waits on; below that
    the stage is "other: " and the innermost function of the program itself.
    """
    for last in (False, True):
        for frame in reversed(frames):
            rule = _rule_of(frame, last)
            if rule is not None:
                return Found(rule.stage, rule.waits, known=True)
    own = next((frame for frame in reversed(frames) if not frame.library), frames[-1])
    module = own.file.rpartition("/")[2].removesuffix(".py")
    return Found(clean(f"other: {module}.{own.function}", MAX_NAME), waits=False, known=False)


@lru_cache(maxsize=4096)
def _rule_of(frame: Frame, last: bool) -> Rule | None:
    return next((rule for rule in rules() if rule.last is last and rule.matches(frame)), None)
