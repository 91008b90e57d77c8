"""Stacks as the sampler prints them, and the stages that they belong to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bottletop.stacks.classify import classify, rules
from bottletop.stacks.raw import Frame, Stack, stacks


def frames(*texts: str) -> tuple[Frame, ...]:
    """Outermost first, each "function@file"; files in folders are of packages."""
    return tuple(Frame(*text.split("@"), library=_is_library(text)) for text in texts)


def _is_library(text: str) -> bool:
    return "/" in text or text.endswith(("@threading.py", "@queue.py", "@selectors.py"))


def test_a_line_is_a_stack_with_its_thread_and_its_samples() -> None:
    printed = (
        'process 7:"python x.py";thread (7): MainThread;<module> (x.py:1);'
        "JSONEncoder.encode (/usr/lib/python3.11/json/encoder.py:183) 26\n"
        "thread (0x1F);<frozen> (<frozen importlib>:1);run (/srv/app/jobs/run.py:971) 3\n"
    )
    assert stacks(printed) == [
        Stack(
            7,
            "MainThread",
            (Frame("<module>", "x.py"), Frame("JSONEncoder.encode", "json/encoder.py", True)),
            26,
        ),
        Stack(
            31,
            "",
            (Frame("<frozen>", "<frozen importlib>", True), Frame("run", "jobs/run.py")),
            3,
        ),
    ]


@pytest.mark.parametrize(
    "line",
    ["", "no count", "f (x.py:1) x", "f (x.py:1) 99999999999", "just words 3", ";;; 3"],
)
def test_what_is_no_stack_is_passed_over(line: str) -> None:
    assert stacks(line) == []


@pytest.mark.parametrize(
    ("path", "short", "library"),
    [
        ("/v/lib/python3.12/site-packages/torch/nn/functional.py", "torch/nn/functional.py", True),
        ("/usr/lib/python3/dist-packages/yaml/nodes.py", "yaml/nodes.py", True),
        ("/usr/lib/python3.11/json/decoder.py", "json/decoder.py", True),
        ("/home/ml/python3.11/serve.py", "python3.11/serve.py", False),
        ("app.py", "app.py", False),
    ],
)  # fmt: skip
def test_a_library_is_told_from_the_program_by_where_it_lies(
    path: str, short: str, library: bool
) -> None:
    (stack,) = stacks(f"f ({path}:3) 1")
    assert (stack.frames[0].file, stack.frames[0].library) == (short, library)


def test_a_thread_may_be_called_anything() -> None:
    (stack,) = stacks("thread (9): a) 7;b (c.py:1);work (x.py:2) 4")
    assert stack.tid == 9
    assert stack.frames[-1] == Frame("work", "x.py")


@given(st.text(max_size=200))
def test_any_text_is_read_without_an_error(text: str) -> None:
    for stack in stacks(text):
        assert classify(stack.frames).stage


@pytest.mark.parametrize(
    ("stack", "stage"),
    [
        (("<module>@x.py", "loop@x.py", "dumps@json/__init__.py"), "serialize"),
        (("<module>@x.py", "forward@x.py", "sum@x.py"), "forward"),
        (("main@x.py", "_call_impl@torch/nn/modules/module.py", "linear@torch/nn/functional.py"),
         "forward"),
        (("main@x.py", "forward@torch/nn/modules/module.py", "synchronize@torch/cuda/__init__.py"),
         "d2h"),
        (("main@x.py", "__next__@torch/utils/data/dataloader.py",
          "_try_get_data@torch/utils/data/dataloader.py", "get@queue.py", "wait@threading.py"),
         "wait-data"),
        (("main@x.py", "_worker_loop@torch/utils/data/_utils/worker.py",
          "fetch@torch/utils/data/_utils/fetch.py", "__getitem__@data.py", "resize@PIL/Image.py"),
         "preprocess"),
        (("main@x.py", "__call__@transformers/tokenization_utils_base.py"), "tokenize"),
        (("main@x.py", "generate@transformers/generation/utils.py",
          "forward@transformers/models/llama/modeling_llama.py"), "forward"),
        (("run@asyncio/runners.py", "_run_once@asyncio/base_events.py", "select@selectors.py"),
         "wait-requests"),
        (("run@uvicorn/server.py", "_run_once@asyncio/base_events.py", "handle@app.py",
          "post_process@app.py"), "postprocess"),
        (("main@x.py", "get@requests/api.py", "recv_into@socket.py"), "tool"),
        (("_bootstrap@threading.py", "run@threading.py", "get@queue.py"), "wait-lock"),
        (("main@x.py", "all_reduce@torch/distributed/distributed_c10d.py"), "wait-collective"),
    ],
)  # fmt: skip
def test_the_innermost_frame_that_is_known_decides(stack: tuple[str, ...], stage: str) -> None:
    found = classify(frames(*stack))
    assert (found.stage, found.known) == (stage, True)


def test_what_nobody_knows_is_called_after_the_programs_own_function() -> None:
    stack = frames("<module>@x.py", "crunch@work.py", "sqrt@numpy/core/umath.py")
    assert classify(stack) == ("other: work.crunch", False, False)


def test_a_name_of_a_package_is_no_name_of_the_program() -> None:
    stack = frames("main@x.py", "resize@site-packages/thing/a.py")
    assert classify(stack).stage == "other: x.main"


def test_names_are_cleaned_and_cut() -> None:
    stage = classify(frames("\x1b[31m" + "a" * 200 + "@x.py")).stage
    assert "\x1b" not in stage
    assert len(stage) <= 48


def test_the_table_names_stages_of_one_vocabulary() -> None:
    known = {
        "queue", "route", "validate", "context", "retrieve", "tool", "tokenize", "preprocess",
        "batch", "h2d", "prefill", "forward", "decode", "d2h", "postprocess", "serialize",
        "load", "compile",
    }  # fmt: skip
    for rule in rules():
        assert rule.stage in known or rule.stage.startswith("wait-"), rule.stage
