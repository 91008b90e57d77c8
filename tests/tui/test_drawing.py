"""Lines, histories, meters, glyphs and themes: the small pieces that screens are made of."""

from __future__ import annotations

import math
from array import array
from dataclasses import astuple, replace
from functools import lru_cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bottletop.collectors.gpu_pace import Held
from bottletop.model import NS_PER_S, Absent, Sample, Severity, State, Unknown
from bottletop.rings import Series
from bottletop.store import Store
from bottletop.tables.gpu import OK, Gpu
from bottletop.tables.process import NOT_PYTHON, TargetInfo
from bottletop.tables.stage import STACKS
from bottletop.text import cell_width
from bottletop.tui import glyphs, history, lines, marks, plot, themes
from bottletop.tui.read_gpu import read_gpus
from bottletop.tui.reading import Reader, Reading
from bottletop.tui.widgets import findings, stages
from bottletop.tui.widgets.gpus import Histories
from tui.synthetic import Host, Shape, gpu_key, settled

NAN = math.nan
NO_SOCKET = Absent(State.NOT_APPLICABLE, "it listens on no socket")
ALL_GLYPHS = (glyphs.BRAILLE, glyphs.BLOCKS, glyphs.CONSOLE, glyphs.ASCII)
TEXTS = st.text(st.characters(exclude_categories=("C", "M", "Z")) | st.just(" "), max_size=30)


# -- lines ---------------------------------------------------------------------------------------


@given(st.integers(1, 60), st.lists(st.tuples(TEXTS, st.sampled_from(("text", "dim", "warn")))))
def test_a_line_has_exactly_its_width(width: int, spans: list[lines.Span]) -> None:
    assert lines.width_of(lines.line(width, spans)) == width


@given(st.text(st.characters(codec="utf-8", exclude_categories=("C",)), max_size=200))
def test_wrapped_text_fits_and_loses_nothing_but_blanks(text: str) -> None:
    rows = lines.wrap(text, 20)
    assert all(cell_width(row) <= 20 for row in rows)
    assert "".join("".join(rows).split()) == "".join(text.split())


def test_a_number_is_not_parted_from_its_unit() -> None:
    assert lines.wrap("lost to it: 28 % of its time", 16) == ["lost to it: 28 %", "of its time"]
    assert lines.wrap("lost to it: 28 % of its time", 15) == ["lost to it:", "28 % of its", "time"]


def test_of_more_lines_than_there_is_room_for_the_last_is_cut() -> None:
    assert lines.wrap("one two three four", 9, 2) == ["one two", "three fo…"]
    assert lines.wrap("one two", 9, 2) == ["one two"]


def test_blanks_take_the_ink_before_them() -> None:
    assert lines.line(6, [("ab", "warn"), ("  ", "text"), ("c", "warn")]) == (("ab  c ", "warn"),)


def test_the_least_important_facts_give_way_first() -> None:
    facts = [(0, [("host", "text")]), (2, [("memory", "text")]), (1, [("cpu", "text")])]
    kept = lines.ranked(11, facts, " | ")
    assert "".join(text for text, _ in kept) == "host | cpu"


# -- histories -----------------------------------------------------------------------------------


def series(*points: tuple[float, float]) -> Series:
    return Series(
        array("q", [round(t * NS_PER_S) for t, _ in points]), array("d", [v for _, v in points])
    )


def test_a_sample_stands_for_the_time_before_it_and_no_longer_than_it_holds() -> None:
    on = history.grid(10 * NS_PER_S, 10, 10)
    found = history.columns(series((3.0, 30), (6.0, 60)), on, hold_s=2)
    shown = ["-" if math.isnan(value) else round(value) for value in found]
    assert shown == [30, 30, 30, 60, 60, 60, "-", "-", "-", "-"]


def test_a_column_is_the_mean_of_its_samples() -> None:
    on = history.grid(4 * NS_PER_S, 4, 2)
    assert history.columns(series((1, 10), (2, 30), (3, 100), (4, 0)), on, 0) == [20, 50]


def test_columns_stay_where_they_are_while_time_goes_on() -> None:
    first = history.grid(round(10.2 * NS_PER_S), 8, 4)
    later = history.grid(round(11.9 * NS_PER_S), 8, 4)
    assert first.end_ns == later.end_ns == 12 * NS_PER_S
    assert history.grid(round(12.1 * NS_PER_S), 8, 4).end_ns == 14 * NS_PER_S


@pytest.mark.parametrize(
    "drawn_with", [glyphs.BRAILLE, glyphs.BLOCKS, glyphs.CONSOLE, glyphs.ASCII]
)
def test_idle_and_unknown_do_not_look_alike(drawn_with: glyphs.Glyphs) -> None:
    cells = drawn_with.samples_a_cell
    idle = history.area([0.0] * cells, 1, drawn_with)[0]
    unknown = history.area([NAN] * cells, 1, drawn_with)[0]
    busy = history.area([100.0] * cells, 1, drawn_with)[0]
    assert unknown == " "
    assert len({idle, unknown, busy}) == 3


@pytest.mark.parametrize("drawn_with", [glyphs.BRAILLE, glyphs.BLOCKS, glyphs.ASCII])
def test_values_beyond_the_scale_stay_inside_the_picture(drawn_with: glyphs.Glyphs) -> None:
    values = [-50.0, 0.0, 100.0, 4_294_967_295.0]
    rows = history.area(values, 2, drawn_with)
    width = len(values) // drawn_with.samples_a_cell
    assert [len(row) for row in rows] == [width, width]


def test_a_history_that_moves_on_is_the_same_as_one_drawn_anew() -> None:
    host = Host(Shape(gpus=2)).run(90)
    kept = Histories()
    for step in (1, 1, 1, 4, 30, 1):
        host.run(step)
        view = host.store.view(host.clock.monotonic_ns())
        for gpu in read_gpus(view, [gpu_key(0)], (), {}, 60):
            on = history.grid(view.now_ns, 60, 140)
            assert kept.columns(gpu, on) == pytest.approx(gpu.util_columns(on), nan_ok=True)


@given(st.floats(0, 1), st.integers(1, 60))
def test_a_meter_never_outgrows_its_track_and_shows_the_smallest_share(
    share: float, width: int
) -> None:
    filled = history.bar(glyphs.BRAILLE.meter, round(share * 1000), width)
    assert len(filled) <= width
    assert bool(filled) == (round(share * 1000) > 0)


# -- marks ---------------------------------------------------------------------------------------


def test_cycles_and_throttled_seconds_are_found_on_the_gpu_they_belong_to() -> None:
    host = settled()
    judged = host.judgement().findings
    view = host.store.view(host.clock.monotonic_ns())
    swings = marks.moments(view, gpu_key(0), judged, 60)
    held = marks.moments(view, gpu_key(5), judged, 60)
    assert {moment.held for moment in swings} == {False}
    assert 20 <= len(swings) <= 27
    assert {moment.held for moment in held} == {True}
    lengths_s = {round((moment.end_ns - moment.start_ns) / NS_PER_S) for moment in held}
    assert lengths_s == {1}
    assert marks.moments(view, gpu_key(1), judged, 60) == ()


def test_guilty_parts_are_marked_by_the_findings_that_name_them() -> None:
    host = settled()
    found = marks.by_entity(host.judgement().findings)
    assert found[gpu_key(5)].severity is Severity.CRIT
    assert found["4242@77001/4250"].codes == ("gpu-starved-cpu",)
    assert found["4242@77001/preprocess"].severity is Severity.WARN
    assert found["4242@77001/preprocess"].codes == (
        "gpu-starved-cpu",
        "preprocess-on-critical-path",
    )


# -- plots ---------------------------------------------------------------------------------------


def curve(**changes: object) -> plot.Curve:
    points = [(t / 2, 50 + 40 * math.sin(t)) for t in range(1, 121)]
    values: dict[str, object] = {
        "title": "gpu util of GPU 0",
        "unit": "%",
        "series": series(*points),
        "threshold": 80.0,
        "low": 0.0,
        "high": 100.0,
        "now_ns": 60 * NS_PER_S,
        "span_s": 60.0,
        "wall_ns": 1_786_000_000 * NS_PER_S,
        **changes,
    }
    return plot.Curve(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize("drawn_with", [glyphs.BRAILLE, glyphs.BLOCKS, glyphs.ASCII])
@pytest.mark.parametrize("size", [(44, 6), (70, 12), (200, 30)])
def test_plots_fill_their_place_with_scale_times_and_threshold(
    drawn_with: glyphs.Glyphs, size: tuple[int, int]
) -> None:
    width, height = size
    drawn = plot.draw(curve(), width, height, drawn_with)
    assert len(drawn) == height
    assert {lines.width_of(row) for row in drawn} == {width}
    text = "\n".join(lines.text_of(row) for row in drawn)
    assert "100" in text
    assert "07:06:40" in text
    inks = {ink for row in drawn[1:] for _, ink in row}
    assert {"data", "warn", "dim"} <= inks


def test_a_gap_is_not_bridged() -> None:
    points = [(t, 50.0) for t in range(1, 20)] + [(20.0, NAN)] + [(t, 50.0) for t in range(41, 60)]
    holed = curve(series=series(*points), threshold=None)
    assert len(plot._runs(holed)) == 2


def test_colour_codes_become_inks_and_foreign_ones_do_no_harm() -> None:
    drawn = plot.from_sgr("\x1b[0m\x1b[38;5;1mab\x1b[0mc\x1b[48;5;15m\x1b[1md", 8)
    assert drawn == [((" ", "text"), ("ab", "data"), ("cd   ", "text"))]


# -- glyphs and themes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "encoding", "term", "name"),
    [
        ("auto", "utf-8", "xterm-256color", "braille"),
        ("auto", "UTF-8", "linux", "console"),
        ("auto", "latin-1", "xterm", "ascii"),
        ("auto", None, "xterm", "ascii"),
        ("blocks", "utf-8", "xterm", "blocks"),
        ("ascii", "utf-8", "xterm", "ascii"),
        ("braille", "ascii", "xterm", "ascii"),
    ],
)
def test_glyphs_are_what_the_terminal_can_show(
    wanted: str, encoding: str | None, term: str, name: str
) -> None:
    assert glyphs.choose(wanted, encoding, term).name == name


def test_an_unknown_glyph_set_or_theme_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="braille, blocks, ascii"):
        glyphs.choose("emoji", "utf-8", "xterm")
    with pytest.raises(ValueError, match="dark, light, ansi"):
        themes.choose("pink", no_color=False, colors=256)


@pytest.mark.parametrize(
    ("wanted", "no_color", "colors", "name"),
    [
        ("auto", False, 1 << 24, themes.DARK.name),
        ("auto", False, 256, themes.DARK.name),
        ("auto", False, 16, themes.ANSI.name),
        ("dark", True, 256, themes.ANSI.name),
        ("light", False, 256, themes.LIGHT.name),
    ],
)
def test_without_enough_colours_the_terminals_own_are_used(
    wanted: str, no_color: bool, colors: int, name: str
) -> None:
    assert themes.choose(wanted, no_color=no_color, colors=colors) == name


def test_all_themes_define_the_same_variables() -> None:
    ours = [{name for name in each.variables if name.startswith("bt-")} for each in themes.THEMES]
    assert ours[0] == ours[1] == ours[2]


@pytest.mark.parametrize("each", ALL_GLYPHS)
def test_every_sign_is_one_cell_wide_and_tells_severities_apart(each: glyphs.Glyphs) -> None:
    signs = list(each.severity.values())
    assert len(set(signs)) == len(signs)
    singles = [each.rule, each.edge, each.dot, each.held, each.pointer, each.cursor, each.head]
    assert {cell_width(sign) for sign in [*signs, *each.state.values(), *singles]} == {1}


# -- readings ------------------------------------------------------------------------------------


def test_a_source_that_falls_silent_leaves_its_entities_with_their_age() -> None:
    host = Host(Shape(gpus=2)).run(60)
    reader = Reader()
    reader.read(host.snapshot())
    host.silent = set(host.store._tables)
    host.run(9)
    reading = reader.read(host.snapshot())
    assert [gpu.trouble for gpu in reading.gpus] == ["no reading for 9 s"] * 2
    assert reading.trouble["core"] == "no reading for 9 s"
    assert {core.busy for core in reading.cores} == {None}


def test_a_gpu_that_is_read_rarely_says_for_how_long_it_was_not() -> None:
    held, store, second = Held(), Store(), NS_PER_S
    row = Gpu.row("GPU-a", 10 * second, {Gpu.health: OK, Gpu.util_pct: 80})
    samples = [Sample("gpu", Gpu, 10 * second, 0, (row,))]
    held.keep(samples)
    for now_s in range(10, 18):
        for sample in samples if now_s == 10 else held.late(now_s * second):
            store.ingest(sample)
    view = store.view(17 * second)
    assert view.keys(Gpu) == ["GPU-a"]
    (picture,) = read_gpus(view, view.keys(Gpu), (), {}, 60)
    assert picture.trouble == "no reading for 7 s"


def test_rules_that_lack_the_same_are_told_once() -> None:
    judged = settled().snapshot()
    lacking = tuple(Unknown(code, "no driver") for code in ("one", "two", "three"))
    unknown = (*lacking, Unknown("four", "needs 8 s of readings"))
    judgement = replace(judged.judgement, findings=(), unknown=unknown)
    reading = Reader().read(replace(judged, judgement=judgement))

    def told(height: int) -> list[str]:
        drawn = findings.draw(reading, 80, height, glyphs.ASCII, None)
        return [" ".join(lines.text_of(row).split()) for row in drawn[2:]]

    first, second = "? 3 rules not judged: no driver", "? four not judged: needs 8 s of readings"
    assert told(4) == [first, second]
    assert told(9) == [first, "one, two, three", second]


def test_a_target_that_has_ended_is_not_asked_for_stages() -> None:
    host = settled(Shape(stages=False))
    target = host.snapshot().target
    assert target is not None
    ended = replace(target, processes=(), gone=True, notes=("still running: pid 7",))
    reading = Reader().read(replace(host.snapshot(), target=ended))
    head, below = [lines.text_of(row) for row in stages.draw(reading, 80, 2, glyphs.ASCII)]
    assert "has ended" in head
    assert below.strip() == "still running: pid 7"


def test_a_probe_closed_to_us_is_not_called_missing() -> None:
    host = settled(Shape(stages=False))
    target = host.target()
    assert target is not None
    noted = replace(target, notes=("part of a server: bottletop attach 7",))
    assert Reader().read(replace(host.snapshot(), target=noted)).stages.trouble == (
        'none marked; in its code: with bottletop.probe.stage("decode"); '
        "part of a server: bottletop attach 7"
    )
    t_ns = host.clock.monotonic_ns()
    closed = {TargetInfo.probe: Absent.denied("its probe is closed to us: sudo bottletop attach 7")}
    row = TargetInfo.row(noted.root.key, t_ns, closed)
    host.store.ingest(Sample("target", TargetInfo, t_ns, 0, (row,)))
    reading = Reader().read(replace(host.snapshot(), target=replace(noted, notes=())))
    assert reading.stages.trouble == "its probe is closed to us: sudo bottletop attach 7"


@lru_cache(maxsize=32)
def _stage_reading(*shape: object) -> Reading:
    return Reader().read(settled(Shape(*shape)).snapshot())  # type: ignore[arg-type]


def stage_rows(
    shape: Shape, width: int = 80, height: int = 12, *, alone: bool = False
) -> list[str]:
    drawn = stages.draw(_stage_reading(*astuple(shape)), width, height, glyphs.ASCII, alone=alone)
    assert len(drawn) <= height
    assert {lines.width_of(row) for row in drawn} == {width}
    return [lines.text_of(row) for row in drawn]


def test_a_server_has_a_line_above_its_stages_and_is_cut_rather_than_broken() -> None:
    _, server, first, *_ = stage_rows(Shape(servers=1))
    assert server.startswith("   vLLM 127.0.0.1:8000: 24 running, 7 waiting, KV cache 84 %")
    assert server.endswith("…")
    assert first.split()[1] == "preprocess"


def test_a_server_that_does_not_answer_comes_first_and_has_a_sign() -> None:
    rows = stage_rows(Shape(servers=1, busy_servers=1))
    assert rows[1].rstrip() == " ! vLLM 127.0.0.1:8001: busy"
    assert rows[2].startswith("   vLLM 127.0.0.1:8000: 24 running")


def test_where_a_line_is_left_one_server_is_told_and_how_many_more_there_are() -> None:
    rows = stage_rows(Shape(servers=3), height=3)
    assert rows[1].endswith(" 2 more: press 2 ")
    assert "preprocess 1.46 s" in rows[2]
    assert not any("vLLM" in row for row in stage_rows(Shape(servers=3), height=2))


@pytest.mark.parametrize("named", [True, False])
def test_servers_stages_and_ways_fit_into_every_panel(named: bool) -> None:
    shape = Shape(servers=3, busy_servers=3, stages=named, rungs=True)
    for width in (60, 64, 80, 114, 220):
        for height in range(1, 40):
            for alone in (True, False):
                assert stage_rows(shape, width, height, alone=alone)


def test_a_server_says_all_where_its_panel_is_alone() -> None:
    said = " ".join(" ".join(stage_rows(Shape(servers=1), height=30, alone=True)).split())
    assert "3 requests/s, 2100 prompt tok/s, 640 tok/s, first token 410 ms" in said


def test_an_estimated_share_shows_its_margin_and_what_it_cannot_know_is_a_dash() -> None:
    _, first, *_ = stage_rows(Shape(source=STACKS))
    name, _, mean, share, unit, source, p95 = first.split()
    assert (name, mean, share + unit, source, p95) == ("tokenize", "–", "38±3%", "stk", "–")


def test_the_rest_of_the_cycle_is_a_line_of_its_own() -> None:
    rows = stage_rows(Shape(source=STACKS))
    assert rows[3].split() == ["outside", "of", "all", "stages", "12", "%", "stk"]
    assert stage_rows(Shape(source=STACKS), height=2)[1].rstrip().endswith(" - outside 12 %")


def test_the_stages_of_a_server_have_no_rest_and_are_marked_as_lagging() -> None:
    rows = stage_rows(Shape(servers=1, stages=False))
    assert all(" srv* " in row for row in rows[2:])
    assert [row.split()[0] for row in rows[2:]] == ["queue", "prefill", "decode"]


def test_each_source_has_a_cycle_of_its_own() -> None:
    rows = stage_rows(Shape(servers=1), width=120)
    begins = {row.split()[0]: row.index("#") for row in rows if "#" in row}
    assert begins["queue"] == begins["!"]  # the first of the probe is marked
    flow = " ".join(stage_rows(Shape(servers=1), width=200, height=2)[1].split())
    assert flow.startswith("prb ! preprocess 1.46 s 60 % > h2d 6 %")
    assert "postprocess 3 % - srv* queue 13 % > prefill 5 %" in flow


def test_a_narrow_panel_leaves_the_source_out_and_keeps_mean_and_share() -> None:
    head, first, *_ = stage_rows(Shape(), width=60)
    assert head.rstrip().endswith("mean share")
    assert "prb" not in first
    assert "1.46 s  60 %" in first


def test_without_stages_the_way_that_can_be_unlocked_is_told_whole() -> None:
    rows = stage_rows(Shape(stages=False, rungs=True), height=3)
    told = " ".join(" ".join(rows[1:]).split())
    assert told.startswith("no stages: kernel.yama.ptrace_scope=1 lets only its parents")
    assert told.endswith(": sudo bottletop attach 4242")


@pytest.mark.parametrize(
    ("metrics", "stacks", "told"),
    [
        (
            Absent.denied("it asks for a token"),
            "py-spy reads pid 4242: 40 of 200 samples",
            "py-spy reads pid 4242: 40 of 200 samples",
        ),
        (Absent.denied("asks for a token"), Absent.denied("not yours"), "asks for a token"),
        (NO_SOCKET, Absent.unsupported("pip install py-spy"), "pip install py-spy"),
        (NO_SOCKET, NOT_PYTHON, "not a Python program; it listens on no socket"),
    ],
)
def test_of_all_ways_the_nearest_to_stages_is_told(
    metrics: Absent, stacks: Absent | str, told: str
) -> None:
    host = settled(Shape(stages=False))
    target = host.target()
    assert target is not None
    t_ns = host.clock.monotonic_ns()
    said = {
        TargetInfo.metrics: metrics,
        TargetInfo.probe: Absent(State.NOT_APPLICABLE, "no stage has run"),
        TargetInfo.stacks: stacks,
    }
    row = TargetInfo.row(target.root.key, t_ns, said)
    host.store.ingest(Sample("target", TargetInfo, t_ns, 0, (row,)))
    assert Reader().read(host.snapshot()).stages.trouble == told


def test_every_way_is_listed_where_the_panel_is_alone_and_only_there() -> None:
    shape = Shape(source=STACKS, rungs=True)
    rows = [" ".join(row.split()) for row in stage_rows(shape, height=20, alone=True)]
    at = rows.index("How its stages are read")
    assert rows[at + 1 : at + 4] == [
        "server metrics not used it listens on no socket",
        "probe not used no stage has run: mark them with bottletop.probe",
        "stack sampler used py-spy, non-blocking, pid 4242, 50 Hz",
    ]
    assert any(row.startswith("stk the stack sampler") for row in rows)
    assert not any("not used" in row for row in stage_rows(shape, height=20))


def test_meanings_give_way_to_the_ways_where_both_do_not_fit() -> None:
    rows = stage_rows(Shape(rungs=True), height=13, alone=True)
    assert not any("every pass is counted" in row for row in rows)
    assert any(row.startswith("   /proc") for row in rows)


def test_shares_and_rates_agree_with_what_was_put_in() -> None:
    reading = Reader().read(Host().run(120).snapshot())
    assert reading.cores[17].busy == pytest.approx(0.97)
    assert reading.threads[0].name == "preprocess"
    assert reading.threads[0].cpu == pytest.approx(0.98)
    assert reading.target is not None
    assert reading.target.cpu == pytest.approx(1.4)
    assert reading.disks[0].await_ms == pytest.approx(0.31, abs=0.02)
    assert reading.pressure == pytest.approx({"cpu": 0.04, "io": 0.11, "memory": 0.0})
