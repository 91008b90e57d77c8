"""Judgements to bytes and back, so that a replay shows at each moment what was said live.

Names that hardly change are string ids; sentences, whose numbers change with every judgement, stay
inline and compress well once about 60 judgements are sealed together.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Annotated

import msgspec

from bottletop.model import (
    Cause,
    Confidence,
    Evidence,
    Finding,
    Judgement,
    Severity,
    Unknown,
    Verdict,
    VerdictState,
)
from bottletop.session import schema
from bottletop.session.codec import Column, Damaged, deflate, inflate
from bottletop.session.decode import BAD_BYTES, integer_list, stamp
from bottletop.session.encode import integers
from bottletop.session.strings import readable, storable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bottletop.session.decode import Texts
    from bottletop.session.events import Evaluated

MAX_ITEMS = 10_000
Ratio = int | float | None


class _Evidence(msgspec.Struct, array_like=True, gc=False):
    metric: int
    entity: int
    value: int | float | str | None
    unit: int
    threshold: Ratio
    span_s: Ratio


class _Finding(msgspec.Struct, array_like=True, gc=False):
    code: int
    severity: int
    scope: int
    text: str
    active: bool
    since_ns: int
    active_s: int | float
    lost: Ratio
    evidence: Annotated[list[_Evidence], msgspec.Meta(max_length=MAX_ITEMS)]
    advice: int
    refuted_by: int
    next_check: int
    confidence: int


class _Cause(msgspec.Struct, array_like=True, gc=False):
    code: int
    share: int | float
    confidence: int
    scope: int


class _Judgement(msgspec.Struct, array_like=True, gc=False):
    t_ns: int
    state: str
    code: int | None
    text: str
    causes: Annotated[list[_Cause], msgspec.Meta(max_length=MAX_ITEMS)]
    findings: Annotated[list[_Finding], msgspec.Meta(max_length=MAX_ITEMS)]
    unknown: Annotated[list[tuple[int, str]], msgspec.Meta(max_length=MAX_ITEMS)]


class _Marks(msgspec.Struct, array_like=True, gc=False):
    t_ns: Column
    arrivals: Column


_Batch = Annotated[list[_Judgement], msgspec.Meta(max_length=schema.MAX_BLOCK_SAMPLES)]

_encode = msgspec.msgpack.Encoder().encode
_decode_marks = msgspec.msgpack.Decoder(_Marks).decode
_decode_one = msgspec.msgpack.Decoder(_Judgement).decode
_decode_batch = msgspec.msgpack.Decoder(_Batch).decode
_decode_finding = msgspec.msgpack.Decoder(_Finding).decode


class JudgementEncoder:
    """Encodes judgements; `intern` gives the id of a text."""

    def __init__(self, intern: Callable[[str], int]) -> None:
        self._intern = intern

    def one(self, judgement: Judgement) -> bytes:
        """One judgement alone, for the tail."""
        return _encode(self._judgement(judgement))

    def batch(self, evaluated: Sequence[Evaluated]) -> tuple[bytes, bytes]:
        """When the rules were judged, and what they said."""
        marks = _Marks(
            integers([item.judgement.t_ns for item in evaluated]),
            integers([item.arrival for item in evaluated]),
        )
        data = _encode([self._judgement(item.judgement) for item in evaluated])
        return _encode(marks), deflate(data)

    def finding(self, finding: Finding) -> bytes:
        """One finding alone, for the table of findings."""
        return _encode(self._finding(finding))

    def _judgement(self, judgement: Judgement) -> _Judgement:
        verdict, intern = judgement.verdict, self._intern
        return _Judgement(
            judgement.t_ns,
            verdict.state.value,
            None if verdict.code is None else intern(verdict.code),
            storable(verdict.text),
            [
                _Cause(intern(cause.code), cause.share, int(cause.confidence), intern(cause.scope))
                for cause in verdict.causes
            ],
            [self._finding(finding) for finding in judgement.findings],
            [(intern(item.code), storable(item.missing)) for item in judgement.unknown],
        )

    def _finding(self, finding: Finding) -> _Finding:
        intern = self._intern
        return _Finding(
            intern(finding.code),
            int(finding.severity),
            intern(finding.scope),
            storable(finding.text),
            finding.active,
            finding.since_ns,
            finding.active_s,
            finding.lost_gpu_s_per_s,
            [
                _Evidence(
                    intern(item.metric),
                    intern(item.entity),
                    storable(item.value) if isinstance(item.value, str) else item.value,
                    intern(item.unit),
                    item.threshold,
                    item.span_s,
                )
                for item in finding.evidence
            ],
            intern(finding.advice),
            intern(finding.refuted_by),
            intern(finding.next_check),
            int(finding.confidence),
        )


class JudgementDecoder:
    """Decodes judgements of a file. Raises `Damaged` on bytes that make no sense."""

    def __init__(self, texts: Texts) -> None:
        self._text = texts.text

    def marks(self, n: int, marks: bytes) -> tuple[list[int], list[int]]:
        """The moments of `n` judgements and the arrivals each had reached."""
        try:
            if not 1 <= n <= schema.MAX_BLOCK_SAMPLES:
                raise Damaged(f"{n} judgements in a row")
            packed = _decode_marks(marks)
            times = [stamp(t_ns) for t_ns in integer_list(packed.t_ns, n)]
            return times, [stamp(arrival) for arrival in integer_list(packed.arrivals, n)]
        except BAD_BYTES as error:
            raise Damaged(str(error)) from None

    def one(self, data: bytes) -> Judgement:
        """One judgement of the tail."""
        try:
            return self._judgement(_decode_one(data))
        except BAD_BYTES as error:
            raise Damaged(str(error)) from None

    def batch(self, n: int, data: bytes) -> list[Judgement]:
        """The `n` judgements of a row."""
        try:
            packed = _decode_batch(inflate(data))
            if len(packed) != n:
                raise Damaged(f"{len(packed)} judgements instead of {n}")
            return [self._judgement(item) for item in packed]
        except BAD_BYTES as error:
            raise Damaged(str(error)) from None

    def finding(self, data: bytes) -> Finding:
        """One finding of the table of findings."""
        try:
            return self._finding(_decode_finding(data))
        except BAD_BYTES as error:
            raise Damaged(str(error)) from None

    def _judgement(self, packed: _Judgement) -> Judgement:
        text = self._text
        verdict = Verdict(
            VerdictState(packed.state),
            None if packed.code is None else text(packed.code),
            readable(packed.text),
            tuple(
                Cause(
                    text(cause.code),
                    _number(cause.share),
                    Confidence(cause.confidence),
                    text(cause.scope),
                )
                for cause in packed.causes
            ),
        )
        return Judgement(
            stamp(packed.t_ns),
            verdict,
            tuple(map(self._finding, packed.findings)),
            tuple(Unknown(text(code), readable(missing)) for code, missing in packed.unknown),
        )

    def _finding(self, packed: _Finding) -> Finding:
        text = self._text
        return Finding(
            code=text(packed.code),
            severity=Severity(packed.severity),
            scope=text(packed.scope),
            text=readable(packed.text),
            active=packed.active,
            since_ns=stamp(packed.since_ns),
            active_s=_number(packed.active_s),
            lost_gpu_s_per_s=_maybe(packed.lost),
            evidence=tuple(
                Evidence(
                    text(item.metric),
                    text(item.entity),
                    readable(item.value) if isinstance(item.value, str) else _maybe(item.value),
                    text(item.unit),
                    _maybe(item.threshold),
                    _maybe(item.span_s),
                )
                for item in packed.evidence
            ),
            advice=text(packed.advice),
            refuted_by=text(packed.refuted_by),
            next_check=text(packed.next_check),
            confidence=Confidence(packed.confidence),
        )


def _number(value: float) -> float:
    if not isfinite(value):
        raise Damaged("not a finite number")
    return value


def _maybe(value: float | None) -> float | None:
    """None also for what is not finite: a screen could not show it."""
    return value if value is not None and isfinite(value) else None
