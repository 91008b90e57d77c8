"""Metric pages of servers: recognised by their names, read by their catalogue."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bottletop.servers.catalog import engines, recognise
from bottletop.servers.exposition import MAX_SERIES, labels_of, names, series
from bottletop.servers.reading import read_page
from bottletop.servers.totals import Totals
from bottletop.tables import Server

VLLM = b"""\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 20.0
vllm:num_requests_waiting{engine="0",model_name="m"} 7
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.32
vllm:prompt_tokens_total{engine="0",model_name="m"} 1.44e+06
vllm:request_queue_time_seconds_bucket{engine="0",le="0.3",model_name="m"} 3
vllm:request_queue_time_seconds_bucket{engine="0",le="+Inf",model_name="m"} 5
vllm:request_queue_time_seconds_sum{engine="0",model_name="m"} 4.5
vllm:request_queue_time_seconds_count{engine="0",model_name="m"} 5
process_start_time_seconds 1.7e9
"""
RANKS = b"""\
sglang:gen_throughput{dp_rank="0",model_name="r1",tp_rank="0"} 35.5
sglang:gen_throughput{dp_rank="0",model_name="r1",tp_rank="1"} 35.25
sglang:gen_throughput{dp_rank="1",model_name="r1",tp_rank="2"} 140.5
sglang:token_usage{dp_rank="0",tp_rank="0"} 0.2
sglang:token_usage{dp_rank="1",tp_rank="2"} 0.9
sglang:scheduler_stage_seconds_total{category="run_batch"} 6
sglang:scheduler_stage_seconds_total{category="idle"} 4
"""
TRITON = b"""\
nv_inference_request_success{model="a",version="1"} 100
nv_inference_count{model="a",version="1"} 160
nv_inference_exec_count{model="a",version="1"} 10
nv_inference_queue_duration_us{model="a",version="1"} 24270000
nv_inference_compute_input_duration_us{model="a",version="1"} 220000
nv_inference_compute_infer_duration_us{model="a",version="1"} 160000
nv_inference_compute_output_duration_us{model="a",version="1"} 1000
"""


def page_of(text: bytes):
    engine = recognise(names(text))
    assert engine is not None
    return engine, read_page(text, engine)


def test_a_vllm_page_gives_columns_stages_and_who_answered() -> None:
    engine, page = page_of(VLLM)
    assert engine.name == "vLLM"
    assert page.columns["running"] == 20
    assert page.columns["waiting"] == 7
    assert page.columns["kv_used_pct"] == pytest.approx(32)
    assert page.columns["prompt_tokens"] == 1_440_000
    assert "preemptions" not in page.columns, "what the page lacks is not zero"
    (queue,) = page.stages
    assert (queue.stage, queue.seconds, queue.calls, queue.lagging) == ("queue", 4.5, 5, True)
    assert queue.buckets == ((0.3, 3), (float("inf"), 5))
    assert page.models == ("m",)
    assert page.worker == "1700000000.00"


def test_ranks_of_one_engine_count_once_and_engines_add_up() -> None:
    engine, page = page_of(RANKS)
    assert engine.name == "SGLang"
    assert page.columns["generation_tokens_per_s"] == pytest.approx(176)
    assert page.parts["generation_tokens_per_s"] == 2
    assert page.columns["kv_used_pct"] == pytest.approx(90), "a fill level is not added up"
    assert {one.stage: (one.seconds, one.calls) for one in page.stages} == {
        "forward": (6, None),
        "wait-requests": (4, None),
    }


def test_pairs_of_counters_are_stages_too() -> None:
    engine, page = page_of(TRITON)
    assert engine.name == "Triton"
    means = {one.stage: one.seconds / (one.calls or 1) for one in page.stages}
    assert means == pytest.approx({"queue": 0.2427, "h2d": 0.0022, "forward": 0.0016, "d2h": 1e-5})
    assert page.columns["inferences"] / page.columns["steps"] == 16


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (b"llamacpp:prompt_tokens_total 143\nllamacpp:prompt_seconds_total 8.168\n", "llama.cpp"),
        (b"tgi_queue_size 3\ntgi_request_count 430\n", "TGI"),
        (b'pytrtllm:num_requests_running{model_name="d"} 1.0\n', "TensorRT-LLM"),
        (b'lmdeploy:num_requests_running{engine="0"} 1.0\n', "LMDeploy"),
        (b'sglang_num_queue_reqs{worker_addr="grpc://127.0.0.1:8001"} 0\n', "SGLang"),
        (b'ray_vllm_num_requests_running{ReplicaId="x"} 2\n', "vLLM"),
        (b'ray_serve_deployment_queued_queries{route="/"} 2\n', "Ray Serve"),
        (b'request_predict_seconds_sum{model_name="x"} 2\n', "KServe"),
        (b'ts_queue_latency_microseconds{model_name="x"} 2\n', "TorchServe"),
        (b'bentoml_service_request_in_progress{endpoint="/"} 2\n', "BentoML"),
        (b'openclaw_queue_lane_size{lane="main"} 2\n', "OpenClaw"),
        (b'http_request_duration_seconds_sum{handler="/p"} 2\n', "FastAPI"),
        (b'mystack:num_requests_waiting{model="x"} 2\n', "unknown server (mystack)"),
    ],
)
def test_a_server_is_recognised_by_its_names(text: bytes, name: str) -> None:
    engine, page = page_of(text)
    assert engine.name == name
    assert page.columns or page.stages


@pytest.mark.parametrize(
    "text",
    [b"", b"<html>hello</html>", b'{"requests": 3}', b"go_goroutines 4\nprocess_open_fds 3\n"],
)
def test_what_nobody_knows_is_not_named(text: bytes) -> None:
    assert recognise(names(text)) is None


def test_the_newest_of_several_names_counts() -> None:
    _, page = page_of(VLLM + b"vllm:gpu_cache_usage_perc 0.99\n")
    assert page.columns["kv_used_pct"] == pytest.approx(32)
    _, old = page_of(b"vllm:gpu_cache_usage_perc 0.99\n")
    assert old.columns["kv_used_pct"] == pytest.approx(99)


def test_labels_may_hold_anything_between_quotes() -> None:
    raw = rb'path="a{b}c,d=\"e\"",worker_addr="grpc://1:2",line="x\ny",bad=1'
    assert labels_of(raw) == {
        "path": 'a{b}c,d="e"',
        "worker_addr": "grpc://1:2",
        "line": "x y",
    }
    (one,) = series(b'm{path="a} 7"} 3 1700000000\n', lambda name: True)
    assert one.value == 3


def test_no_number_is_left_out() -> None:
    page = b'a NaN\nb +Inf\nc x\nd 1\nd{\ne{a="b" 2\n'
    assert [one.name for one in series(page, lambda name: True)] == ["d"]


def test_a_page_without_end_is_cut_off() -> None:
    page = b"a 1\n" * (MAX_SERIES + 10)
    assert sum(1 for _ in series(page, lambda name: True)) == MAX_SERIES


@given(st.binary(max_size=400))
def test_any_bytes_are_read_without_an_error(page: bytes) -> None:
    for engine in engines():
        read_page(page, engine)
    recognise(names(page))


def test_every_catalogue_fills_columns_that_exist() -> None:
    columns = {metric.name for metric in Server.columns}
    for engine in engines():
        assert engine.sources or engine.stages, engine.name
        assert {source.column for source in engine.sources} <= columns, engine.name
        assert {source.combine for source in engine.sources} <= {"sum", "max"}
        for one in engine.stages:
            assert bool(one.histogram) != bool(one.total), (engine.name, one.stage)


class TestTotals:
    """Counters of several workers behind one address."""

    def test_the_first_page_is_the_base_and_growth_is_added(self) -> None:
        totals = Totals()
        totals.take("", {"requests": 100})
        totals.take("", {"requests": 130})
        assert totals.total == {"requests": 130}

    def test_another_worker_is_no_reset(self) -> None:
        totals = Totals()
        totals.take("a", {"requests": 100})
        totals.take("b", {"requests": 3})
        totals.take("a", {"requests": 110})
        totals.take("b", {"requests": 8})
        assert totals.total == {"requests": 115}
        assert (totals.workers, totals.restarts) == (2, 0)

    def test_a_counter_that_went_back_adds_nothing_and_becomes_the_base(self) -> None:
        totals = Totals()
        totals.take("", {"requests": 100, "tokens": 5})
        totals.take("", {"requests": 2, "tokens": 9})
        totals.take("", {"requests": 12, "tokens": 10})
        assert totals.total == {"requests": 110, "tokens": 6}
        assert totals.restarts == 1

    def test_a_counter_that_comes_up_later_is_no_jump(self) -> None:
        totals = Totals()
        totals.take("", {"requests": 1})
        totals.take("", {"requests": 1, "preemptions": 40})
        totals.take("", {"requests": 1, "preemptions": 41})
        assert totals.total == {"requests": 1, "preemptions": 1}
