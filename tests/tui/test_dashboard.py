"""What keys, the mouse and changing hosts do to the dashboard."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from bottletop.model import NS_PER_S, Absent, Finding, Judgement, Sample, Severity, State
from bottletop.tables import Gpu, GpuProcess
from bottletop.tables.gpu import UNIFIED
from bottletop.tui import glyphs, themes
from tui.conftest import dashboard
from tui.synthetic import Host, LiveHost, RecordedHost, Shape, gpu_key, settled
from tui.test_snapshots import processes

if TYPE_CHECKING:
    from pathlib import Path

    from bottletop.snapshot import Snapshot

WIDE = (120, 40)


# -- live ----------------------------------------------------------------------------------------


async def test_a_pause_freezes_the_picture_and_says_its_age_while_sampling_goes_on() -> None:
    host = settled()
    async with dashboard(host) as stage:
        before = await stage.press("p")
        assert "PAUSED 0 s" in before
        host.run(7)
        after = await stage.settle()
        assert "PAUSED 7 s" in after
        assert after.splitlines()[1:] == before.splitlines()[1:]
        resumed = await stage.press("p")
        assert "PAUSED" not in resumed
        assert "07:09:17" in resumed


async def test_a_feed_that_brings_nothing_new_is_not_shown_as_if_it_lived() -> None:
    host = settled()
    async with dashboard(host) as stage:
        assert "NO NEW DATA" not in await stage.settle()
        host.clock.advance(6)
        assert "NO NEW DATA 6 s" in await stage.settle()
        host.run(1)
        assert "NO NEW DATA" not in await stage.settle()


async def test_nothing_is_repainted_while_nothing_changed() -> None:
    host = settled()
    async with dashboard(host) as stage:
        await stage.settle()
        panels = stage.app.overview._panels
        kept = [list(panel._strips) for panel in panels]
        stage.app.pump._generation = None  # the same picture again, under another number
        await stage.settle()
        for panel, strips in zip(panels, kept, strict=True):
            assert all(a is b for a, b in zip(panel._strips, strips, strict=True))


async def test_the_cursor_follows_the_finding_and_not_the_row() -> None:
    host = settled()
    async with dashboard(host, WIDE) as stage:
        await stage.press("down")
        chosen = stage.app.overview.findings.selected()
        assert chosen is not None
        assert chosen.code == "thermal-throttle"
        host.shape.target = False  # the findings above it vanish
        host.run(1)
        await stage.settle()
        assert stage.app.overview.findings.selected().code == chosen.code


async def test_a_finding_that_is_gone_stays_explained_and_says_so() -> None:
    host = settled()
    async with dashboard(host) as stage:
        assert "Wrong if" in await stage.press("enter")
        host.shape.findings = False
        host.run(1)
        assert "no longer reported" in await stage.settle()
        assert "BOTTLENECK" not in await stage.press("escape")


async def test_a_click_on_a_marked_gpu_opens_its_finding() -> None:
    async with dashboard(settled(), WIDE) as stage:
        await stage.settle()
        await stage.pilot.click("#gpus", offset=(4, 1 + 2 * 5))
        assert "thermal-throttle" in (await stage.settle()).splitlines()[1]


async def test_the_process_lists_count_as_looked_at_while_the_gpus_are_alone() -> None:
    feed = LiveHost(settled())
    async with dashboard(feed, WIDE) as stage:
        await stage.press("1")
        assert feed.looked_at == {GpuProcess}
        await stage.press("1")
        assert feed.looked_at == frozenset()


async def test_a_part_without_memory_of_its_own_is_shown_to_share_the_hosts() -> None:
    host = Host(Shape(gpus=1)).run(30)
    last = host.store.view(host.clock.monotonic_ns())
    cells = {metric: last.last(metric, gpu_key(0)) for metric in Gpu.columns}
    cells |= {
        Gpu.memory_kind: UNIFIED,
        Gpu.mem_total_bytes: 127600748 * 1024,
        Gpu.mem_used_bytes: Absent(State.NOT_APPLICABLE, "no memory of its own"),
    }
    host.clock.advance(0.1)
    now_ns = host.clock.monotonic_ns()
    row = Gpu.row(gpu_key(0), now_ns, cells)
    host.store.ingest(Sample("synthetic", Gpu, now_ns, 0, (row,)))
    async with dashboard(host, WIDE) as stage:
        screen = await stage.settle()
        assert "memory shared 121.7 GiB (system memory)" in screen
        assert "   shared  " in screen


async def test_a_click_on_a_finding_opens_it() -> None:
    async with dashboard(settled(), WIDE) as stage:
        rows = (await stage.settle()).splitlines()
        row = next(at for at, text in enumerate(rows) if "◆ gpu-util-sawtooth" in text)
        await stage.pilot.click(offset=(30, row))
        assert "gpu-util-sawtooth" in (await stage.settle()).splitlines()[1]


async def test_a_click_on_a_key_hint_does_what_the_key_does() -> None:
    async with dashboard(settled()) as stage:
        keys = stage.text.splitlines()[-1]
        await stage.pilot.click("#keys", offset=(keys.index("p pause"), 0))
        assert "PAUSED" in await stage.settle()


async def test_recording_shows_a_badge_and_names_its_file() -> None:
    feed = LiveHost(settled())
    async with dashboard(feed, WIDE) as stage:
        await stage.press("R")
        assert "recording to gpu-node-07-" in await stage.until("REC 12.0 MiB")
        await stage.press("R")
        assert "REC 12" not in await stage.until("recorded: bottletop replay gpu-node-07-")
        assert feed.recording is None


async def test_a_recording_that_cannot_start_says_why() -> None:
    feed = LiveHost(settled(), refuse="No space left on device")
    async with dashboard(feed, WIDE) as stage:
        await stage.press("R")
        screen = await stage.until("not recording: No space left on device")
        assert "REC" not in screen.splitlines()[0]


async def test_a_recording_that_stops_says_why_and_keeps_its_badge() -> None:
    feed = LiveHost(settled())
    async with dashboard(feed, WIDE) as stage:
        await stage.press("R")
        assert feed.recording is not None
        why = "recording stopped: disk is full"
        feed.recording = replace(feed.recording, error=why, stopped=True)
        feed.host.run(1)
        screen = await stage.until(why)
        assert "REC FAILED" in screen.splitlines()[0]
        feed.recording = replace(feed.recording, error="slow disk: beware", stopped=False)
        feed.host.run(1)
        assert "REC 12.0 MiB slow disk" in await stage.until("slow disk")


async def test_attaching_goes_to_the_process_that_was_picked() -> None:
    feed = LiveHost(settled())
    async with dashboard(feed, candidates=processes) as stage:
        await stage.press("a")
        await stage.until("4 of 4")
        assert "1 of 4" in await stage.press(*"nginx")
        await stage.press("enter")
        await stage.until("attached to pid 4003")
        assert feed.attached == [4003]


async def test_attaching_that_fails_says_why() -> None:
    feed = LiveHost(settled(), refuse="no process 4003")
    async with dashboard(feed, candidates=processes) as stage:
        await stage.press("a")
        await stage.until("4 of 4")
        await stage.press(*"nginx", "enter")
        await stage.until("no process 4003")


async def test_the_output_pane_shows_what_is_added(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("first\n")
    async with dashboard(settled(), log_path=str(log)) as stage:
        assert "first" in await stage.settle()
        with log.open("a") as file:
            file.write("\x1b]0;title\x07second\n")
        screen = await stage.settle()
        assert "]0;title second" in screen
        assert "\x1b" not in screen
        assert "second" not in await stage.press("l")


async def test_history_length_is_changed_by_z() -> None:
    async with dashboard(settled(), WIDE) as stage:
        seen = [await stage.press("z") for _ in range(4)]
        spans = ["last 30 s", "last 5m00s", "last 60m00s", "last 60 s"]
        assert [span in screen for span, screen in zip(spans, seen, strict=True)] == [True] * 4


@pytest.mark.parametrize("theme", [theme.name for theme in themes.THEMES])
async def test_every_theme_draws_the_same_characters(theme: str) -> None:
    async with dashboard(settled(), theme=theme) as stage:
        dark = await stage.settle()
    async with dashboard(settled()) as stage:
        assert await stage.settle() == dark
        await stage.press("t")
        assert stage.app.theme == themes.LIGHT.name


HOSTILE = (
    "[bold]x[/bold]",
    "a[/b]c",
    "名前が長いプロセス" * 8,
    "e\u0301\u0301\u0301",
    "{}%s$PATH",
    "x" * 400,
    "",
)


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("size", [(60, 15), (80, 24), (200, 50)])
async def test_names_from_outside_are_shown_as_they_are(name: str, size: tuple[int, int]) -> None:
    shape = Shape(gpus=1, gpus_of_target=1, target_name=name, thread_name=name)
    async with dashboard(settled(shape), size) as stage:
        overview = await stage.settle()
        await stage.press("5")
        explained = await stage.press("enter")
    if name and len(name) < 20:
        assert name in overview + explained
    for strip_line in (overview + explained).splitlines():
        assert len(strip_line) <= size[0] * 2


@pytest.mark.parametrize("drawn_with", [glyphs.ASCII, glyphs.CONSOLE], ids=lambda each: each.name)
async def test_wide_names_keep_the_columns_in_place_where_they_cannot_be_shown(
    drawn_with: glyphs.Glyphs,
) -> None:
    shape = Shape(gpus=1, gpus_of_target=1, target_name="名前")
    async with dashboard(settled(shape), drawn_with=drawn_with) as stage:
        screen = await stage.settle()
    assert "???? " in screen
    screen.encode(drawn_with.charset)


class Shouting(LiveHost):
    """A feed with findings that no rule of this version has."""

    def snapshot(self) -> Snapshot:
        made = super().snapshot()
        odd = Finding(
            code="gpu-melts",
            severity=Severity.CRIT,
            scope="GPU-unknown",
            text="of a later version, with a very long sentence " * 6,
            active=False,
            since_ns=0,
            active_s=3,
            lost_gpu_s_per_s=None,
            evidence=(),
            advice="",
            refuted_by="",
            next_check="",
        )
        judged = Judgement(made.judgement.t_ns, made.judgement.verdict, (odd,))
        return replace(made, judgement=judged)


async def test_a_finding_of_a_rule_that_is_not_known_is_still_explained() -> None:
    async with dashboard(Shouting(settled())) as stage:
        assert "ended" in await stage.settle()
        explained = await stage.press("enter")
        assert "gpu-melts" in explained
        assert "none was recorded" in explained


# -- replay --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "at_s"),
    [
        (("right",), 100),
        (("left",), 80),
        (("shift+right",), 150),
        (("shift+left",), 30),
        (("right_square_bracket",), 91),
        (("left_square_bracket", "left_square_bracket"), 88),
        (("home",), 0),
        (("end",), 150),
        (("n",), 100),
        (("N",), 35),
        (("N", "N"), 20),
        (("g", "1", "colon", "0", "5", "enter"), 65),
        (("g", "plus", "3", "0", "enter"), 120),
        (("g", "5", "0", "percent_sign", "enter"), 75),
        (("g", "escape"), 90),
    ],
)
async def test_replay_keys_go_where_they_say(keys: tuple[str, ...], at_s: int) -> None:
    feed = RecordedHost()
    async with dashboard(feed) as stage:
        await stage.press(*keys)
        screen = await stage.settle()
    assert feed.at_s == at_s
    assert f"{at_s // 60:02d}:{at_s % 60:02d} of 02:30" in screen


async def test_space_plays_and_pauses_and_plus_and_minus_change_the_speed() -> None:
    async with dashboard(RecordedHost()) as stage:
        assert "playing 1×" in await stage.press("space")
        assert "playing 4×" in await stage.press("plus", "plus")
        assert "playing 2×" in await stage.press("minus")
        assert "paused 2×" in await stage.press("space")


@pytest.mark.parametrize("text", ["x", "inf", "nan", "1e999", "5m"])
async def test_a_time_that_is_not_one_is_refused_with_examples(text: str) -> None:
    feed = RecordedHost()
    async with dashboard(feed) as stage:
        screen = await stage.press("g", *text, "enter")
    assert f"{text!r} is not a time: 14:32:07" in screen
    assert feed.at_s == 90


@pytest.mark.parametrize(("text", "at_s"), [("70", 70), ("70s", 70), ("1:10", 70), ("+5s", 95)])
async def test_a_time_may_be_given_in_several_ways(text: str, at_s: int) -> None:
    feed = RecordedHost()
    async with dashboard(feed) as stage:
        keys = {"+": "plus", ":": "colon"}
        await stage.press("g", *(keys.get(char, char) for char in text), "enter")
    assert feed.at_s == at_s


async def test_a_click_on_the_track_goes_there() -> None:
    feed = RecordedHost()
    async with dashboard(feed, WIDE) as stage:
        await stage.settle()
        await stage.pilot.click("#transport", offset=(3, 1))
        assert feed.at_s == 0


async def test_a_replay_offers_nothing_that_only_a_live_host_can_do() -> None:
    feed = RecordedHost()
    async with dashboard(feed, WIDE) as stage:
        screen = await stage.press("R", "a", "p")
    assert "REPLAY" in screen
    assert "attach" not in screen
    assert "PAUSED" not in screen


async def test_a_recording_that_was_cut_off_says_so() -> None:
    class Cut(RecordedHost):
        def snapshot(self) -> Snapshot:
            made = super().snapshot()
            assert made.playback is not None
            return replace(made, playback=replace(made.playback, ended_cleanly=False))

    async with dashboard(Cut(), WIDE) as stage:
        assert "cut off" in await stage.settle()


async def test_the_recorded_wall_time_is_shown_and_not_the_present_one() -> None:
    feed = RecordedHost()
    wall_s = feed.host.clock.wall_ns() // NS_PER_S
    assert wall_s == 1_786_000_120
    async with dashboard(feed) as stage:
        assert "recorded 2026-08-06 07:08:40 UTC" in await stage.settle()


def test_the_synthetic_keys_are_uuids_of_distinct_gpus() -> None:
    assert len({gpu_key(index) for index in range(16)}) == 16
