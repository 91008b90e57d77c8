"""What a server says of its requests over a window, as screens, the report and `--json` show it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from bottletop.model import NS_PER_S, Absent, State, number
from bottletop.store import RAW_SPAN_S, Missing
from bottletop.tables.server import ANSWERS, SERVER_STATE, Server
from bottletop.units import MISSING, number_text, seconds_text, value_text

if TYPE_CHECKING:
    from bottletop.model import Metric
    from bottletop.store import View


class ServerStat(NamedTuple):
    """One endpoint of the target over a window. None is unknown, never zero."""

    key: str
    engine: str
    url: str
    state: str
    """A label of `tables.server.SERVER_STATE`; "late" where the last page is old."""
    models: str
    running: float | None
    waiting: float | None
    kv_used_pct: float | None
    requests_per_s: float | None
    """Requests that ended well."""
    prompt_tokens_per_s: float | None
    generation_tokens_per_s: float | None
    ttft_s: float | None
    """Mean time to first token of the requests that got theirs in the window."""
    inter_token_s: float | None
    request_s: float | None
    """Mean of whole requests that ended in the window."""
    batch: float | None
    """Mean number of items in a batch that was run."""
    cache_hit_pct: float | None
    """Prompt tokens that were found in the prefix cache."""
    preemptions_per_s: float | None
    missing: tuple[str, ...]
    """What servers of its kind say of themselves and this one does not, by column of `server`."""

    @property
    def answers(self) -> bool:
        """Whether the last page is young and was given."""
        return self.state == SERVER_STATE[ANSWERS]


def server_stats(view: View, span_s: float) -> list[ServerStat]:
    """Servers of the target over the last `span_s` seconds (300 at most)."""
    span_s = min(span_s, RAW_SPAN_S)
    keys = view.keys(Server)
    return view.memo(("server_stats", span_s), lambda: [_stat(view, key, span_s) for key in keys])


def _stat(view: View, key: str, span_s: float) -> ServerStat:
    def now(metric: Metric) -> float | None:
        return number(view.last(metric, key))

    def rate(metric: Metric) -> float | None:
        grown = _grown(view, metric, key, span_s)
        return None if grown is None else grown[0] / grown[1]

    def mean(total: Metric, count: Metric, scale: float = 1.0) -> float | None:
        over, of = _grown(view, total, key, span_s), _grown(view, count, key, span_s)
        return over[0] / of[0] * scale if over and of and of[0] > 0 else None

    def is_missing(metric: Metric) -> bool:
        value = view.last(metric, key)
        return isinstance(value, Absent) and value.state is State.UNSUPPORTED

    state = now(Server.state)
    tokens = rate(Server.generation_tokens)
    hits = mean(Server.cache_hits, Server.cache_queries)
    return ServerStat(
        key=key,
        engine=view.text(Server.engine, key),
        url=view.text(Server.url, key),
        state="late" if state is None else SERVER_STATE.get(int(state), MISSING),
        models=view.text(Server.models, key),
        running=now(Server.running),
        waiting=now(Server.waiting),
        kv_used_pct=now(Server.kv_used_pct),
        requests_per_s=rate(Server.requests),
        prompt_tokens_per_s=rate(Server.prompt_tokens),
        generation_tokens_per_s=now(Server.generation_tokens_per_s) if tokens is None else tokens,
        ttft_s=mean(Server.ttft_ns, Server.ttft_count, 1 / NS_PER_S),
        inter_token_s=mean(Server.inter_token_ns, Server.inter_token_count, 1 / NS_PER_S),
        request_s=mean(Server.request_ns, Server.request_count, 1 / NS_PER_S),
        batch=mean(Server.inferences, Server.steps),
        cache_hit_pct=None if hits is None else 100 * hits,
        preemptions_per_s=rate(Server.preemptions),
        missing=tuple(metric.name for metric in Server.columns if is_missing(metric)),
    )


def _grown(view: View, metric: Metric, key: str, span_s: float) -> tuple[float, float] | None:
    try:
        grown = view.growth(metric, key, span_s)
    except Missing:
        return None
    return grown.amount, grown.span_s


def server_text(stat: ServerStat) -> str:
    """One line on a server: what it is, what is in it, what comes out. Unknown parts are left out.

    Of running, waiting and KV cache, what servers of its kind export and this one does not is a
    dash.
    """
    lead = f"{stat.engine} {stat.key}"
    if not stat.answers:
        return f"{lead}: {stat.state}"
    parts = [
        text.format(value_text(value, unit))
        for metric, value, text, unit in (
            (Server.running, stat.running, "{} running", ""),
            (Server.waiting, stat.waiting, "{} waiting", ""),
            (Server.kv_used_pct, stat.kv_used_pct, "KV cache {}", "%"),
        )
        if value is not None or metric.name in stat.missing
    ]
    for value, text in (
        (stat.requests_per_s, "{} requests/s"),
        (stat.prompt_tokens_per_s, "{} prompt tok/s"),
        (stat.generation_tokens_per_s, "{} tok/s"),
        (stat.batch, "batch of {}"),
    ):
        if value is not None:
            parts.append(text.format(number_text(round(value, 2))))
    for value, text in (
        (stat.ttft_s, "first token {}"),
        (stat.inter_token_s, "next {}"),
        (stat.request_s, "request {}"),
    ):
        if value is not None:
            parts.append(text.format(seconds_text(value)))
    if stat.cache_hit_pct is not None:
        parts.append(f"prefix cache hit {value_text(stat.cache_hit_pct, '%')}")
    if stat.preemptions_per_s:
        parts.append(f"{number_text(round(stat.preemptions_per_s, 2))} preemptions/s")
    return f"{lead}: {', '.join(parts)}"
