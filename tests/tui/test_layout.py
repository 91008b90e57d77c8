"""Panels never overlap, never leave the screen, and what matters most is there at every size."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bottletop.tui.layout import (
    MIN_HEIGHT,
    MIN_WIDTH,
    PANELS,
    Box,
    Content,
    Want,
    plan,
    shape_of,
    share,
)

CONTENTS = st.builds(
    Content,
    gpus=st.integers(0, 16),
    cores=st.integers(0, 768),
    disks=st.integers(0, 40),
    stages=st.integers(0, 30),
    stage_trouble=st.integers(0, 300),
    servers=st.integers(0, 9),
    outside=st.integers(0, 2),
    findings=st.integers(0, 40),
    target=st.booleans(),
    replay=st.booleans(),
    log=st.booleans(),
    solo=st.sampled_from(("", *PANELS)),
)


def cells(box: Box) -> set[tuple[int, int]]:
    return {
        (x, y) for x in range(box.x, box.x + box.width) for y in range(box.y, box.y + box.height)
    }


@given(st.integers(MIN_WIDTH, 400), st.integers(MIN_HEIGHT, 100), CONTENTS)
def test_panels_lie_on_the_screen_and_beside_one_another(
    width: int, height: int, content: Content
) -> None:
    boxes = list(plan(width, height, content).values())
    for box in boxes:
        assert box.width > 0
        assert box.height > 0
        assert box.x >= 0
        assert box.y >= 0
        assert box.x + box.width <= width
        assert box.y + box.height <= height
    for at, box in enumerate(boxes):
        for other in boxes[at + 1 :]:
            apart_x = box.x + box.width <= other.x or other.x + other.width <= box.x
            apart_y = box.y + box.height <= other.y or other.y + other.height <= box.y
            assert apart_x or apart_y


@given(st.integers(MIN_WIDTH, 400), st.integers(MIN_HEIGHT, 100), CONTENTS)
def test_the_answer_is_there_at_every_size(width: int, height: int, content: Content) -> None:
    boxes = plan(width, height, content)
    assert {"host", "verdict", "keys"} <= set(boxes)
    assert ("transport" in boxes) == content.replay
    if content.solo:
        assert content.solo in boxes


@pytest.mark.parametrize("size", [(60, 15), (80, 24), (120, 40), (200, 50)])
@pytest.mark.parametrize("gpus", [0, 1, 2, 8])
def test_gpus_stages_and_findings_are_there_at_the_sizes_that_count(
    size: tuple[int, int], gpus: int
) -> None:
    content = Content(gpus=gpus, cores=64, disks=4, stages=4, findings=4, target=True)
    boxes = plan(*size, content)
    assert {"gpus", "stages", "findings"} <= set(boxes)
    if size >= (80, 24):
        assert {"cores", "disks"} <= set(boxes)
        assert boxes["findings"].height >= 3


def test_a_wide_screen_has_threads_too_and_a_small_one_nothing() -> None:
    content = Content(gpus=8, cores=64, disks=4, stages=4, findings=4)
    assert shape_of(200, 50) == "wide"
    assert "threads" in plan(200, 50, content)
    assert plan(59, 24, content) == {}
    assert plan(80, 14, content) == {}


def test_rows_are_given_by_rank_and_in_useful_numbers() -> None:
    wants = (
        Want("gpus", 5, 9, 17, sizes=(5, 9, 17)),
        Want("stages", 2, 5, 5),
        Want("findings", 3, 4, 9),
    )
    assert share(10, wants, "findings") == {"gpus": 5, "stages": 2, "findings": 3}
    assert share(15, wants, "findings") == {"gpus": 9, "stages": 3, "findings": 3}
    assert share(26, wants, "findings") == {"gpus": 17, "stages": 5, "findings": 4}
    assert share(40, wants, "findings") == {"gpus": 17, "stages": 5, "findings": 18}
    assert share(6, wants, "findings") == {"gpus": 6}


def test_a_server_has_a_line_at_80x24_and_a_reason_the_lines_it_takes() -> None:
    content = Content(gpus=8, cores=64, disks=4, stages=4, findings=4, target=True)
    assert plan(80, 24, content)["stages"].height == 2
    assert plan(80, 24, replace(content, servers=3))["stages"].height == 3
    bare = replace(content, gpus=1, stages=0)
    assert plan(80, 24, replace(bare, stage_trouble=40))["stages"].height == 2
    assert plan(80, 24, replace(bare, stage_trouble=92))["stages"].height == 3
    assert plan(80, 24, replace(bare, stages=2, outside=1))["stages"].height == 4
