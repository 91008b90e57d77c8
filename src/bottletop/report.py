"""The judgement of a whole watch as one JSON object and as plain text, live or from a recording."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bottletop.gpu_text import gpu_documents, gpu_lines, process_documents, process_lines
from bottletop.ladder import Rung, ladder
from bottletop.model import NS_PER_S, Severity, SourceState
from bottletop.serving import ServerStat, server_stats, server_text
from bottletop.stages import StageStat, stage_stats
from bottletop.tables import Process
from bottletop.text import fit, wrap
from bottletop.units import MISSING, seconds_text, value_text

if TYPE_CHECKING:
    from bottletop.model import Evidence, Finding, Judgement
    from bottletop.snapshot import ReadFile, Watch

SCHEMA = 1
STAGE_WINDOW_S = 300


def exit_code(judgement: Judgement) -> int:
    """0 when nothing at warn or above was found over the watch, else 1."""
    return int(any(finding.severity >= Severity.WARN for finding in judgement.findings))


def document(watch: Watch) -> dict[str, Any]:
    """The `--json` object, schema 1. Missing values are null."""
    verdict = watch.judgement.verdict
    return {
        "schema": SCHEMA,
        "verdict": {
            "state": verdict.state.value,
            "code": verdict.code,
            "text": verdict.text,
            "causes": [
                {
                    "code": cause.code,
                    "share": round(cause.share, 4),
                    "confidence": cause.confidence.label,
                }
                for cause in verdict.causes
            ],
        },
        "findings": [_finding(finding, watch) for finding in watch.judgement.findings],
        "unknown": [
            {"code": unknown.code, "missing": unknown.missing}
            for unknown in watch.judgement.unknown
        ],
        "target": _target(watch),
        "stages": [_stage(stat) for stat in _stages(watch)],
        "servers": [_server(stat) for stat in _servers(watch)],
        "ladder": [rung._asdict() for rung in ladder(watch.view)],
        "sources": [
            {"name": source.name, "state": source.state.label, "reason": source.reason or None}
            for source in watch.sources
        ],
        "gpus": gpu_documents(watch.view),
        "gpu_processes": process_documents(watch.view),
        "files": [_file(file) for file in watch.files],
        "notes": list(watch.notes),
        "watched_s": round(watch.watched_s, 3),
        "simulated": watch.simulated or None,
    }


def _file(file: ReadFile) -> dict[str, Any]:
    return {
        "name": file.name,
        "format": file.format or None,
        "readings": file.readings,
        "period_s": None if file.period_s is None else round(file.period_s, 3),
        "assumed_s": file.assumed_s,
        "doubts": list(file.doubts),
        "limits": list(file.limits),
        "refused": file.refused or None,
    }


def _finding(finding: Finding, watch: Watch) -> dict[str, Any]:
    since = datetime.fromtimestamp(watch.anchor.wall_at(finding.since_ns) / NS_PER_S, UTC)
    return {
        "code": finding.code,
        "severity": finding.severity.label,
        "scope": finding.scope,
        "text": finding.text,
        "active": finding.active,
        "active_s": round(finding.active_s, 3),
        "since": since.isoformat(timespec="milliseconds") if watch.dated else None,
        "since_mono_s": round(finding.since_ns / NS_PER_S, 3),
        "lost_gpu_s_per_s": finding.lost_gpu_s_per_s,
        "evidence": [
            {
                "metric": item.metric,
                "entity": item.entity,
                "value": item.value,
                "unit": item.unit,
                "threshold": item.threshold,
            }
            for item in finding.evidence
        ],
        "advice": finding.advice,
        "refuted_by": finding.refuted_by,
        "next_check": finding.next_check,
    }


def _target(watch: Watch) -> dict[str, Any] | None:
    target = watch.target
    if target is None:
        return None
    processes = []
    for process in target.processes:
        threads = watch.view.last(Process.threads, process.id.key)
        processes.append(
            {
                "pid": process.id.pid,
                "role": process.role,
                "threads": threads if isinstance(threads, int) else None,
            }
        )
    return {"pid": target.root.pid, "name": target.name, "processes": processes}


def _window_s(watch: Watch) -> float:
    return min(STAGE_WINDOW_S, max(watch.watched_s, 1))


def _stages(watch: Watch) -> list[StageStat]:
    return stage_stats(watch.view, _window_s(watch))


def _servers(watch: Watch) -> list[ServerStat]:
    return server_stats(watch.view, _window_s(watch))


def _stage(stat: StageStat) -> dict[str, Any]:
    return {
        "name": stat.name,
        "source": stat.source,
        "mean_s": stat.mean_s,
        "p95_s": stat.p95_s,
        "calls_per_s": stat.calls_per_s,
        "occupancy": stat.occupancy,
        "share": stat.share,
        "in_flight": stat.in_flight,
        "share_margin": stat.margin,
    }


def _server(stat: ServerStat) -> dict[str, Any]:
    return {"address": stat.key, **{k: v for k, v in stat._asdict().items() if k != "key"}}


# -- plain text --------------------------------------------------------------------------------


def text(watch: Watch, width: int = 80) -> str:
    """The same for people: verdict first, then evidence, then what could not be seen."""
    parts = [_head(watch), _verdict(watch, width)]
    about: dict[str, list[str]] = {}
    for finding in watch.judgement.findings:
        about.setdefault(finding.scope, []).append(finding.code)
    gpus = [*gpu_lines(watch.view, about), *process_lines(watch.view)]
    if gpus:
        parts.append("\n".join(gpus))
    servers = _servers(watch)
    if servers:
        parts.append("\n".join(_wrapped("SERVER  ", server_text(one), width) for one in servers))
    stages = _stages(watch)
    if stages:
        parts.append(_stage_table(stages))
    rungs = ladder(watch.view)
    if rungs:
        parts.append(_ladder(rungs, width))
    parts.extend(_finding_text(finding, width) for finding in watch.judgement.findings)
    missing = _missing(watch, width)
    if missing:
        parts.append(missing)
    if watch.files:
        parts.append(_files(watch, width))
    return "\n\n".join(parts) + "\n"


def _head(watch: Watch) -> str:
    what = f"judged {watch.origin}," if watch.origin else "watched"
    line = f"bottletop: {what} {seconds_text(watch.watched_s)}"
    if watch.target is not None:
        pid = watch.target.root.pid
        line += f" of {watch.target.name} (pid {pid})" if watch.target.name else f" of pid {pid}"
        if watch.target.gone:
            line += ", which has ended"
    return f"{line}  [{watch.simulated}]" if watch.simulated else line


def _verdict(watch: Watch, width: int) -> str:
    verdict = watch.judgement.verdict
    lines = [_wrapped(f"VERDICT  {verdict.state.value}: ", verdict.text, width, 9)]
    lines.extend(
        f"         {cause.share:4.0%}  {cause.code}  ({cause.confidence.label} confidence)"
        for cause in verdict.causes
    )
    return "\n".join(lines)


def _stage_table(stages: list[StageStat]) -> str:
    rows = [("STAGE", "MEAN", "P95", "CALLS/S", "OCCUPANCY", "SHARE", "SOURCE")]
    rows.extend(
        (
            stat.name,
            value_text(stat.mean_s, "s"),
            value_text(stat.p95_s, "s"),
            value_text(stat.calls_per_s, ""),
            value_text(stat.occupancy, ""),
            _share(stat),
            stat.source,
        )
        for stat in stages
    )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    widths[0] = min(widths[0], 30)
    return "\n".join(
        "  ".join(
            fit(cell, width, right=0 < column < len(row) - 1)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _ladder(rungs: list[Rung], width: int) -> str:
    lines = [
        _wrapped(f"  {rung.name}: ", rung.text if rung.used else f"no, {rung.text}", width, 4)
        for rung in rungs
    ]
    return "\n".join(["HOW ITS STAGES ARE READ", *lines])


def _share(stat: StageStat) -> str:
    if stat.share is None:
        return MISSING
    return f"{stat.share:.0%}" + (f" ±{stat.margin * 100:.0f}" if stat.margin is not None else "")


def _finding_text(finding: Finding, width: int) -> str:
    state = "active" if finding.active else "ended"
    span = seconds_text(finding.active_s)
    lines = [
        f"{finding.severity.label.upper():6} {finding.code}  ({state}, {span})",
        _wrapped("       ", finding.text, width),
    ]
    lines.extend(
        _wrapped("       - ", _evidence_text(item, finding.scope), width)
        for item in finding.evidence
    )
    for label, content in (
        ("do", finding.advice),
        ("check", finding.next_check),
        ("wrong if", finding.refuted_by),
    ):
        if content:
            lines.append(_wrapped(f"       {label}: ", content, width))
    return "\n".join(lines)


def _evidence_text(item: Evidence, scope: str) -> str:
    """One measured number; what it was measured on is named where that is not the scope itself."""
    of = "" if item.entity in ("", scope) else f" of {item.entity.rpartition('/')[2]}"
    line = f"{item.metric}{of}: {value_text(item.value, item.unit)}"
    if item.threshold is not None:
        line += f" (threshold {value_text(item.threshold, item.unit)})"
    return line


def _wrapped(lead: str, content: str, width: int, indent: int | None = None) -> str:
    """`content` after `lead`, later lines indented under it (or by `indent`)."""
    under = " " * (len(lead) if indent is None else indent)
    return wrap(content, width, lead, under)


def _files(watch: Watch, width: int) -> str:
    """What each file was taken for, what of it was not read, and what its kind cannot show."""
    lines = []
    for file in watch.files:
        if file.refused:
            continue
        count = "1 reading" if file.readings == 1 else f"{file.readings} readings"
        if file.period_s is not None:
            count += f", one each {seconds_text(file.period_s)}"
        if file.assumed_s is not None:
            count += " (assumed: it has no time stamps; --every says it)"
        lines.append(_wrapped(f"  {file.name}: ", f"{file.format}, {count}", width, 4))
        lines.extend(_wrapped("    not read: ", doubt, width, 6) for doubt in file.doubts)
    limits = dict.fromkeys(limit for file in watch.files for limit in file.limits)
    lines.extend(_wrapped("  limits: ", limit, width, 4) for limit in limits)
    lines.extend(_wrapped("  note: ", note, width, 4) for note in watch.notes)
    return "\n".join(["READ FROM", *lines])


def _missing(watch: Watch, width: int) -> str:
    """Sources that are not ok, rules that could not be judged by what they lack, and notes."""
    lines = [
        (f"source {source.name}", f"{source.state.label}: {source.reason}")
        for source in watch.sources
        if source.state not in (SourceState.OK, SourceState.SIMULATED)
    ]
    rules: dict[str, list[str]] = {}
    for unknown in watch.judgement.unknown:
        rules.setdefault(unknown.missing, []).append(unknown.code)
    for missing, codes in rules.items():
        what = "rule" if len(codes) == 1 else f"{len(codes)} rules"
        lines.append((f"{what} not judged", f"{missing} ({', '.join(codes)})"))
    if watch.target is not None:
        lines.extend(("note", note) for note in watch.target.notes)
    if not lines:
        return ""
    return "\n".join(
        ["NOT SEEN", *(_wrapped(f"  {lead}: ", rest, width, 4) for lead, rest in lines)]
    )
