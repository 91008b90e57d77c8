"""Known cases as series of readings, the whole way: driver, collector, store, rules, report.

Each was a public issue; the answer that turned out right is what the report must say, and what
misled people is what it must not.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hosttree import stat_line
from importlab import codes
from importlab.simulated import judge, scenario

from bottletop import report
from bottletop.model import Severity
from bottletop.tables import Gpu, GpuProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from bottletop.model import Finding
    from bottletop.snapshot import Watch
    from nvml.host import Host

    Simulate = Callable[..., Host]

DATA = Path(__file__).parent / "data"


def series(name: str) -> str:
    return (DATA / f"{name}.csv").read_text()


def said(watched: Watch) -> str:
    """Everything that findings and verdict say."""
    parts = [watched.judgement.verdict.text]
    for finding in watched.judgement.findings:
        parts += [finding.text, finding.advice]
    return " ".join(parts)


def one(watched: Watch, code: str) -> Finding:
    (finding,) = [f for f in watched.judgement.findings if f.code == code]
    return finding


def index(watched: Watch, scope: str) -> object:
    return watched.view.last(Gpu.index, scope)


def test_power_capped_at_60_percent_of_any_limit(simulate: Simulate) -> None:
    text, seconds = scenario(series("capped-at-60-percent"), repeat=True)
    watched = judge(simulate(text), 2 * seconds)
    finding = one(watched, "power-cap-below-limit")
    assert finding.severity is Severity.WARN
    assert "60 %" in finding.text
    for words in ("connectors", "PSU", "power budget"):
        assert words in finding.advice
    for words in ("thermal", "heat", "at the power limit", "Raise the limit"):
        assert words not in said(watched)


def test_an_idle_link_is_told_beside_its_load_and_never_as_a_fault(simulate: Simulate) -> None:
    text, seconds = scenario(series("idle-link"))
    idle: list[str] = []

    def look(watched: Watch) -> None:
        if 4 <= watched.watched_s <= 9:
            idle.extend(line for line in report.text(watched).splitlines() if "GPU 1 " in line)

    watched = judge(simulate(text), seconds, look)
    assert idle
    assert all("Gen1 (max 3, idle) x16" in line for line in idle)
    assert max((f.severity for f in watched.judgement.findings), default=0) <= Severity.INFO
    assert "PCIe Gen3 x16" in report.text(watched)


def test_a_card_stuck_in_a_low_state_beside_one_that_is_not(simulate: Simulate) -> None:
    text, seconds = scenario(series("stuck-state"))
    watched = judge(simulate(text), seconds + 20)
    finding = one(watched, "clocks-held-low")
    assert index(watched, finding.scope) == 3
    assert "P8 under load, GPU 2 runs P0" in finding.text
    assert "idle" not in finding.text


def test_a_card_on_a_narrow_riser_is_bound_by_its_link(simulate: Simulate) -> None:
    text, seconds = scenario(series("riser"))
    watched = judge(simulate(text), seconds + 20)
    finding = one(watched, "h2d-bound")
    assert index(watched, finding.scope) == 1
    assert "x1 Gen2" in finding.text
    assert "500 MB/s" in finding.text
    assert "idle link" not in said(watched)


def test_power_is_not_blamed_where_two_cards_wait_for_one_another(simulate: Simulate) -> None:
    text, seconds = scenario(series("no-peer-access"))
    watched = judge(simulate(text), seconds + 20)
    assert not {code for code in codes(watched) if code.startswith("power")}
    assert "power" not in said(watched)


def test_one_lost_card_leaves_the_others_live_and_in_their_places(simulate: Simulate) -> None:
    cards = [f"gpu\n  busy {busy}" for busy in (97, 95, 96)]
    watched = judge(simulate("\n".join([*cards, "gpu\n  pci 00000000:C1:00.0\n  lost"])), 40)
    finding = one(watched, "recovery-required")
    assert finding.severity is Severity.CRIT
    assert "GPU 3" in finding.text
    lines = [line for line in report.text(watched).splitlines() if line.startswith("GPU ")]
    assert [line.split()[1] for line in lines] == ["0", "1", "2", "3"]
    assert ["97 %" in lines[0], "95 %" in lines[1], "96 %" in lines[2]] == [True] * 3
    assert "lost" in lines[3]


def add_process(proc: Path, pid: int) -> None:
    """A python as /proc shows it."""
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "stat").write_bytes(stat_line(pid, b"python3"))
    (folder / "comm").write_text("python3\n")
    (folder / "status").write_text(f"Name:\tpython3\nPid:\t{pid}\nNSpid:\t{pid}\n")


def test_memory_of_a_process_that_the_driver_does_not_tell(
    simulate: Simulate, tmp_path: Path
) -> None:
    add_process(tmp_path / "proc", 79)
    host = simulate("gpu\n  busy 50\n  process 79 - 0.5", proc=tmp_path / "proc")
    shown = report.text(judge(host, 12))
    assert "pid 79 python3 on GPU 0: GPU mem n/a" in shown
    assert "17179869184" not in shown


def test_a_process_that_ends_between_list_and_proc_ends_nothing(
    simulate: Simulate, tmp_path: Path
) -> None:
    proc = tmp_path / "proc"
    add_process(proc, 23001)
    host = simulate("gpu\n  busy 50\n  process 22919 431 0.2\n  process 23001 1211 0.3", proc=proc)
    watched = judge(host, 12)
    assert "pid 23001 python3 on GPU 0: GPU mem 1211 MiB" in report.text(watched)
    pids = [watched.view.last(GpuProcess.pid, key) for key in watched.view.keys(GpuProcess)]
    assert 23001 in pids
