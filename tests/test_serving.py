"""What a server says of its requests over a window."""

from __future__ import annotations

import pytest

from bottletop.model import NS_PER_S, Absent, Sample, State, Value
from bottletop.serving import server_stats, server_text
from bottletop.store import Store, View
from bottletop.tables import Server
from bottletop.tables.server import ANSWERS, BUSY


def watched(**first: tuple[Value, Value]) -> View:
    """Two pages ten seconds apart; each column's value at the first and at the second."""
    store = Store()
    for at, t_s in enumerate((100, 110)):
        values = {getattr(Server, name): pair[at] for name, pair in first.items()}
        row = Server.row(
            "127.0.0.1:8000",
            t_s * NS_PER_S,
            {Server.engine: "vLLM", Server.state: ANSWERS, **values},
        )
        store.ingest(Sample("server", Server, t_s * NS_PER_S, 0, (row,)))
    return store.view(110 * NS_PER_S)


def test_rates_and_means_are_of_the_window() -> None:
    view = watched(
        running=(1, 4),
        waiting=(0, 7),
        kv_used_pct=(10, 32),
        requests=(100, 150),
        generation_tokens=(1000, 6000),
        ttft_ns=(0, 10 * NS_PER_S),
        ttft_count=(0, 50),
        cache_queries=(0, 1000),
        cache_hits=(0, 250),
    )
    (stat,) = server_stats(view, 30)
    assert stat.requests_per_s == pytest.approx(5)
    assert stat.generation_tokens_per_s == pytest.approx(500)
    assert stat.ttft_s == pytest.approx(0.2)
    assert stat.cache_hit_pct == pytest.approx(25)
    assert stat.request_s is None
    assert stat.preemptions_per_s is None
    assert server_text(stat) == (
        "vLLM 127.0.0.1:8000: 4 running, 7 waiting, KV cache 32 %, 5 requests/s, 500 tok/s, "
        "first token 200 ms, prefix cache hit 25 %"
    )


def test_without_requests_in_the_window_a_mean_is_unknown() -> None:
    (stat,) = server_stats(watched(ttft_ns=(5e9, 5e9), ttft_count=(3, 3)), 30)
    assert stat.ttft_s is None


def test_what_is_not_exported_is_a_dash_and_not_zero() -> None:
    none = Absent.unsupported("this server does not export it")
    not_counted = Absent(State.NOT_APPLICABLE, "servers of this kind do not count it")
    view = watched(
        prompt_tokens=(0, 143),
        running=(none, none),
        waiting=(none, none),
        kv_used_pct=(not_counted, not_counted),
    )
    (stat,) = server_stats(view, 30)
    assert stat.missing == ("running", "waiting")
    assert server_text(stat).startswith(
        "vLLM 127.0.0.1:8000: – running, – waiting, 14.3 prompt tok/s"
    )


def test_a_busy_server_is_said_to_be_busy() -> None:
    store = Store()
    values = dict.fromkeys(Server.columns, Absent(State.STALE, "busy"))
    row = Server.row("a:1", NS_PER_S, {**values, Server.engine: "TGI", Server.state: BUSY})
    store.ingest(Sample("server", Server, NS_PER_S, 0, (row,)))
    (stat,) = server_stats(store.view(NS_PER_S), 30)
    assert server_text(stat) == "TGI a:1: busy"
