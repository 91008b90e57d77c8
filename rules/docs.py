"""Explains rules from their docstrings: `bottletop rules [CODE]` and docs/rules.md."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from bottletop.rules import RULES
from bottletop.text import wrap

if TYPE_CHECKING:
    from bottletop.rules.base import Rule

HEADINGS = (
    "What",
    "Why",
    "How judged",
    "What to do",
    "When it is wrong",
    "References",
)
WIDTH = 80


def sections(rule: Rule) -> dict[str, str]:
    """The rule's docstring by heading, each as one paragraph; the summary under "".

    Raises ValueError when a heading is missing, unknown, empty or out of order.
    """
    lines = (inspect.getdoc(type(rule)) or "").splitlines()
    found: dict[str, list[str]] = {"": []}
    current = ""
    for line in lines:
        if line in HEADINGS:
            current = line
        found.setdefault(current, [])
        if line != current and line.strip():
            found[current].append(line.strip())
    if tuple(found)[1:] != HEADINGS:
        raise ValueError(f"{rule.code}: headings are {tuple(found)[1:]}, wanted {HEADINGS}")
    texts = {heading: " ".join(text) for heading, text in found.items()}
    empty = [heading for heading, text in texts.items() if not text]
    if empty:
        raise ValueError(f"{rule.code}: nothing under {empty}")
    return texts


def find(code: str) -> Rule | None:
    """The rule of that code."""
    return next((rule for rule in RULES if rule.code == code), None)


def listing() -> str:
    """One line a rule: code, severity, title."""
    width = max(len(rule.code) for rule in RULES)
    return "".join(
        f"{rule.code:{width}}  {rule.severity.label:6}  {rule.title}\n"
        for rule in sorted(RULES, key=lambda rule: rule.code)
    )


def explain(code: str, width: int = WIDTH) -> str | None:
    """Everything about one rule as plain text; None when there is no such rule."""
    rule = find(code)
    if rule is None:
        return None
    texts = sections(rule)
    title = f"{rule.code} ({rule.severity.label}, {rule.role.value})"
    parts = [f"{title}\n{_indented(texts[''], width)}"]
    parts.extend(f"{heading}\n{_indented(texts[heading], width)}" for heading in HEADINGS)
    names = ", ".join(dict.fromkeys(metric.id for metric in rule.needs))
    parts.append("Judged from\n" + _indented(names, width))
    parts.append("Settings\n" + "\n".join(_indented(line, width, 6) for line in _settings(rule)))
    for label, text in (("Wrong if", rule.refuted_by), ("Check next", rule.next_check)):
        parts.append(f"{label}\n{_indented(text, width)}")
    return "\n\n".join(parts) + "\n"


def _indented(text: str, width: int, hang: int | None = None) -> str:
    return wrap(text, width, "  ", "  " if hang is None else " " * hang)


def _settings(rule: Rule) -> list[str]:
    lines = [
        f"looks back {rule.window_s:g} s; fires on {rule.fire.k} of {rule.fire.n} looks, clears on "
        f"{rule.clear.k} of {rule.clear.n}"
    ]
    lines.extend(
        f"{name} = {threshold.value:g} {threshold.unit}".rstrip()
        + f"  ({threshold.basis}) {threshold.help}"
        for name, threshold in rule.thresholds.items()
    )
    return lines


def markdown() -> str:
    """docs/rules.md, whole."""
    parts = [
        "# Rules\n",
        "Written from the rules themselves by `python -m bottletop.rules.docs`; a test compares. "
        "`bottletop rules CODE` prints the same for one rule.\n",
        "Thresholds are set in `~/.config/bottletop/config.toml` under `[rules.CODE]`. *Cited*: "
        "taken from a source; *tried*: tried on synthetic series; *judgement*: ours.\n",
        "| code | severity | part in the verdict | title |",
        "|---|---|---|---|",
    ]
    ordered = sorted(RULES, key=lambda rule: rule.code)
    parts.extend(
        f"| [{rule.code}](#{rule.code}) | {rule.severity.label} | {rule.role.value} | "
        f"{rule.title} |"
        for rule in ordered
    )
    parts.extend(_rule_markdown(rule) for rule in ordered)
    return "\n".join(parts) + "\n"


def _rule_markdown(rule: Rule) -> str:
    texts = sections(rule)
    parts = [f"\n## {rule.code}\n", f"{texts['']}\n"]
    parts.extend(f"**{heading}.** {texts[heading]}\n" for heading in HEADINGS)
    parts.append(f"**Wrong if.** {rule.refuted_by}\n")
    parts.append(f"**Check next.** {rule.next_check}\n")
    parts.append(
        f"Looks back {rule.window_s:g} s; fires on {rule.fire.k} of {rule.fire.n} looks, clears on "
        f"{rule.clear.k} of {rule.clear.n}."
        + (f" Mutes {', '.join(rule.mutes)}." if rule.mutes else "")
        + "\n"
    )
    if rule.thresholds:
        parts.append("| setting | value | basis | meaning |\n|---|---|---|---|")
        parts.extend(
            f"| {name} | {f'{threshold.value:g} {threshold.unit}'.rstrip()} | {threshold.basis} | "
            f"{threshold.help} |"
            for name, threshold in rule.thresholds.items()
        )
        parts.append("")
    names = dict.fromkeys(metric.id for metric in rule.needs)
    parts.append("Judged from " + ", ".join(f"`{name}`" for name in names) + ".")
    return "\n".join(parts)


if __name__ == "__main__":
    import sys

    sys.stdout.write(markdown())
