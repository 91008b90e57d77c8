"""Follows findings from onset to end, one row each, with the evidence of their worst moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

    from bottletop.model import Finding, Judgement, Severity
    from bottletop.session.judgements import JudgementEncoder

WORSE = 1.1
"""Evidence is stored anew when the loss has grown by this factor, or the severity has risen."""


class FindingLog:
    """Writes the table of findings, judgement by judgement."""

    def __init__(self, db: sqlite3.Connection, judgements: JudgementEncoder) -> None:
        self._db = db
        self._encode = judgements.finding
        self._active: dict[tuple[str, str], tuple[int, Severity, float]] = {}
        """Row, worst severity and worst loss of each finding that has not ended."""
        self._rows = 0

    def follow(self, judgement: Judgement) -> None:
        """Take in the next judgement."""
        active = {(f.code, f.scope): f for f in judgement.findings if f.active}
        for key in [key for key in self._active if key not in active]:
            row, _, _ = self._active.pop(key)
            self._db.execute("UPDATE finding SET t_off=? WHERE id=?", (judgement.t_ns, row))
        for key, finding in active.items():
            known = self._active.get(key)
            lost = finding.lost_gpu_s_per_s or 0.0
            if known is None:
                self._rows += 1
                self._begin(self._rows, finding, judgement.t_ns)
                self._active[key] = (self._rows, finding.severity, lost)
            elif finding.severity > known[1] or lost > known[2] * WORSE:
                self._worsen(known[0], finding, judgement.t_ns)
                self._active[key] = (known[0], finding.severity, lost)

    def _begin(self, row: int, finding: Finding, t_ns: int) -> None:
        severity, data = int(finding.severity), self._encode(finding)
        self._db.execute(
            "INSERT INTO finding VALUES(?, ?, ?, ?, NULL, ?, ?)",
            (row, finding.code, severity, finding.since_ns, t_ns, data),
        )

    def _worsen(self, row: int, finding: Finding, t_ns: int) -> None:
        self._db.execute(
            "UPDATE finding SET severity=?, t_peak=?, data=? WHERE id=?",
            (int(finding.severity), t_ns, self._encode(finding), row),
        )
