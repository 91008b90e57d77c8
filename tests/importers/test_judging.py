"""Imported evidence meets the same engine: coarse is not stale, short is not silent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from importlab import codes, query, read, watch

from bottletop import importers, report
from bottletop.cli import main
from bottletop.imported import _looks
from bottletop.importers import NotImportable
from bottletop.importers.base import Fact, GpuId, Material, Options, Reading
from bottletop.model import VerdictState
from bottletop.tables import Gpu

if TYPE_CHECKING:
    from collections.abc import Sequence

DATA = Path(__file__).parent / "data"
HEADER = (
    "timestamp, index, utilization.gpu [%], power.draw [W], power.limit [W], "
    "power.default_limit [W], clocks.sm [MHz], clocks.max.sm [MHz], temperature.gpu, "
    "clocks_event_reasons.active"
)
THERMAL, POWER, NONE = "0x0000000000000020", "0x0000000000000004", "0x0000000000000000"


def log(
    count: int, every_s: float, *, clock: int = 1980, reasons: str = NONE, util: int = 99
) -> str:
    rows = []
    for n in range(count):
        t_s = n * every_s
        at = f"2024/01/01 {int(t_s // 3600):02d}:{int(t_s // 60) % 60:02d}:{t_s % 60:06.3f}"
        rows.append(f"{at}, 0, {util} %, 300 W, 350 W, 350 W, {clock} MHz, 1980 MHz, 88, {reasons}")
    return query(rows, HEADER)


@pytest.mark.parametrize("every_s", [0.1, 1, 5, 10, 60])
def test_heat_is_found_at_any_pace(every_s: float) -> None:
    found = watch(read(log(600 if every_s < 1 else 60, every_s, clock=1300, reasons=THERMAL)))
    assert "thermal-throttle" in codes(found)
    assert found.judgement.verdict.code == "thermal-throttle"
    assert found.judgement.verdict.state is VerdictState.BOTTLENECK


@pytest.mark.parametrize("every_s", [0.1, 1, 5, 60])
def test_a_healthy_card_is_clear_at_any_pace_and_nothing_is_stale(every_s: float) -> None:
    found = watch(read(log(600 if every_s < 1 else 60, every_s)))
    assert not codes(found)
    assert found.judgement.verdict.state is VerdictState.CLEAR
    assert not [entry for entry in found.judgement.unknown if "stale" in entry.missing]


@pytest.mark.parametrize("every_s", [1, 5, 60])
def test_one_bad_reading_in_many_is_not_a_finding(every_s: float) -> None:
    good = log(60, every_s).splitlines()
    bad = log(60, every_s, clock=1300, reasons=THERMAL).splitlines()
    found = watch(read("\n".join([*good[:30], bad[30], *good[31:]])))
    assert not codes(found)


def test_a_fast_log_is_looked_at_once_a_second() -> None:
    joined = importers.join([read(log(100, 0.1))])
    assert 9 <= len(list(_looks(joined.samples))) <= 12
    joined = importers.join([read(log(30, 1))])
    assert len(list(_looks(joined.samples))) == 30


def test_twelve_readings_are_enough_for_what_holds_in_all_of_them() -> None:
    assert "thermal-throttle" in codes(watch(read(log(12, 1, clock=1300, reasons=THERMAL))))


def test_a_snapshot_judges_states_and_says_what_needs_time() -> None:
    found = watch(read((DATA / "smi-q-580.txt").read_text()))
    assert "power-limit-lowered" in codes(found)
    why = {entry.code: entry.missing for entry in found.judgement.unknown}
    assert "needs 10 s of readings" in why["gpu-idle-no-demand"]
    assert "thermal-throttle" in why
    well = watch(read((DATA / "smi-q-390.txt").read_text()))
    assert well.judgement.verdict.state is VerdictState.CANNOT_TELL


def test_heat_without_a_known_maximum_is_said_and_its_cost_left_open() -> None:
    rows = [f"0, 99 %, 91, {THERMAL}"] * 40
    header = "index, utilization.gpu [%], temperature.gpu, clocks_event_reasons.active"
    found = watch(read(query(rows, header)))
    (finding,) = found.judgement.findings
    assert finding.code == "thermal-throttle"
    assert finding.lost_gpu_s_per_s is None
    assert "cannot be read" in finding.text
    assert found.judgement.verdict.code == "thermal-throttle"


def test_a_low_clock_is_not_blamed_where_nothing_tells_of_limiters() -> None:
    rows = [f"{n},99,1500,1980" for n in range(60)]
    found = watch(read(query(rows, "t,util,sm_mhz,sm_max_mhz")))
    assert "clocks-held-low" not in codes(found)
    assert "clocks-held-low" in {entry.code for entry in found.judgement.unknown}


def test_a_link_that_is_full_is_named_and_one_that_is_not_is_not() -> None:
    header = "t,gpu,util,pcie_gen,pcie_width,pcie_rx_mb_s"
    full = [f"{n},0,60,1,4,900" for n in range(40)]
    free = [f"{n},1,60,4,16,900" for n in range(40)]
    found = watch(read(query([*full, *free], header)))
    scopes = {finding.scope for finding in found.judgement.findings if finding.code == "h2d-bound"}
    assert scopes == {"GPU 0"}


def test_a_lowered_limit_that_is_not_even_reached_is_not_the_cause() -> None:
    rows = [f"{n},99,150,300,400,1000,1400,1,0,0" for n in range(60)]
    header = "t,util,power,limit,power_limit_default,sm_mhz,sm_max_mhz,sw_power_cap"
    found = watch(read(query(rows, header + ",sw_thermal,hw_thermal")))
    assert codes(found) == {"power-cap-below-limit"}


def test_processes_alone_show_who_shares_a_gpu() -> None:
    head = "# gpu  pid  type  sm  command\n# Idx  #  C/G  %  name\n"
    rows = " 0  11  C  54  serve\n 0  12  C  40  train\n 1  13  C  90  other\n"
    found = watch(read(head + rows * 40))
    (finding,) = [f for f in found.judgement.findings if f.code == "gpu-contended"]
    assert finding.scope == "GPU 0"
    assert "serve (pid 11)" in finding.text
    assert "sum over its processes" in " ".join(found.notes)


def test_a_gap_in_the_log_ends_nothing_and_invents_nothing() -> None:
    early = log(40, 1).splitlines()
    late = [row.replace("2024/01/01", "2024/01/02") for row in log(40, 1).splitlines()[1:]]
    found = watch(read("\n".join([*early, *late])))
    assert not codes(found)
    assert found.watched_s == pytest.approx(86_439)


def test_another_format_is_one_class_that_is_listed() -> None:
    class Doorbell:
        format = "doorbell log"

        def recognise(self, head: Sequence[str]) -> float:
            return float(head[0] == "DOORBELL")

        def read(self, material: Material, options: Options) -> Reading:
            del options
            rings = [float(line) for line in material.lines[1:] if line]
            facts = [Fact(Gpu, t_s, {Gpu.util_pct: 50}, GpuId(index=0)) for t_s in rings]
            return Reading(self.format, facts)

    found = importers.material("x", b"DOORBELL\n0\n1\n2\n")
    reading = importers.read(found, importers=(*importers.IMPORTERS, Doorbell()))
    assert reading.format == "doorbell log"
    assert watch(reading).watched_s == 2


# -- the command ---------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return tmp_path


def test_the_report_says_what_each_file_was_taken_for(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "hot.csv").write_text(log(60, 5, clock=1300, reasons=THERMAL))
    (home / "app.txt").write_text("it was slow\n")
    assert main(["report", "--from", str(home / "hot.csv"), str(home / "app.txt")]) == 1
    said = capsys.readouterr()
    assert "hot.csv: nvidia-smi --query-gpu CSV, 60 readings, one each 5.00 s" in said.out
    assert "thermal-throttle" in said.out
    assert "snapshots" in said.out
    assert "app.txt: no format that can be read" in said.err


def test_json_has_files_and_gpus_and_no_date_that_nobody_wrote(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = "index, utilization.gpu [%], temperature.gpu, clocks_event_reasons.active"
    (home / "a.csv").write_text(query([f"0, 99 %, 91, {THERMAL}"] * 40, header))
    main(["report", "--json", "--every", "5s", "--from", str(home / "a.csv")])
    document = json.loads(capsys.readouterr().out)
    assert document["files"][0]["assumed_s"] == 5
    assert document["findings"][0]["since"] is None
    assert document["gpus"][0]["util_pct"] == 99
    assert document["gpus"][0]["clock_event_reasons"] == "software thermal slowdown"
    assert document["target"] is None


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["none.csv"], "No such file"),
        (["."], "folder"),
        (["app.txt"], "app.txt: no format that can be read"),
        (["a.csv", "--pid", "1"], "leave the recording, --pid and --root out"),
        (["a.csv"] * 70, "at most 64"),
    ],
)
def test_nothing_usable_is_one_line_and_exit_code_2(
    arguments: list[str],
    says: str,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(home)
    (home / "app.txt").write_text("it was slow\n")
    (home / "a.csv").write_text(log(3, 1))
    assert main(["report", "--from", *arguments]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


# -- hostile ---------------------------------------------------------------------------------------

GOOD = [
    log(5, 1),
    (DATA / "smi-q-580.txt").read_text(),
    (DATA / "smi-q-390.txt").read_text(),
    (DATA / "smi-table-525.txt").read_text(),
    "# gpu   pwr sm  pclk rxpci\n# Idx     W   %   MHz  MB/s\n    0    26  6  1404  3\n" * 3,
    "# gpu  pid  type  sm  command\n# Idx  #  C/G  %  name\n 0  12  C  5  python\n" * 3,
    "t,gpu,util,power_w,throttle\n0,0,5,6,0x4\n1,0,5,6,none\n",
    "MemTotal: 1 kB\n",
]
PIECES = st.sampled_from(
    [
        "\x00",
        "\x1b[2J",
        "-",
        ",",
        "|",
        ":",
        "9" * 400,
        "0x" + "f" * 99,
        "ERR!",
        "[N/A]",
        "٣",
        "\u202e",
        "GPU 00000000:00:00.0",
        "\n",
        "\r",
        "#",
        "nan",
        "inf",
        "1e308",
        "  ",
        "%",
        "2024/13/45 99:99:99",
    ]
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_no_damage_to_a_log_is_a_traceback_or_an_escape(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(GOOD))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 40))
        text = text[:at] + data.draw(PIECES) + text[at + cut :]
    raw = text.encode("utf-8", "surrogatepass")
    try:
        reading = importers.read(importers.material("x", raw))
        found = watch(reading)
    except NotImportable as error:
        shown = str(error)
    else:
        shown = report.text(found)
        json.dumps(report.document(found), allow_nan=False)
        assert not [e for e in found.judgement.unknown if "rule failed" in e.missing]
    assert shown.replace("\n", "").isprintable()
