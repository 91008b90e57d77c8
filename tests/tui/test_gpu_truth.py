"""What the screens say of GPUs that are lost, mute, lying, partitioned, throttled or closed to us.

Everything runs through the simulated driver, the real binding, the collectors, the store and the
rules; only the terminal is headless. Each test is one of the faults that monitors get wrong.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from bottletop import report
from bottletop.clock import anchor
from bottletop.collectors.base import Unavailable
from bottletop.model import NO_VERDICT, Judgement, Source, SourceState
from bottletop.rules.engine import Engine
from bottletop.snapshot import Snapshot, Watch
from bottletop.store import Store
from bottletop.tables import GpuProcess
from nvml.build import build
from nvml.host import Host
from nvml.pci import PciTree
from tui.conftest import dashboard

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bottletop.model import Table
    from tui.conftest import Stage

WIDE = (120, 40)
MOST_PAGES = 20


class Simulated:
    """A live feed of a simulated driver: one `run` is that many seconds of ticks."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.store = Store()
        self.engine = Engine()
        self.seconds = 0
        self.judgement = Judgement(0, NO_VERDICT)
        self.looked_at: frozenset[type[Table]] = frozenset()
        self.source = Source("gpu", SourceState.OK, "", 0.0004, 0.4)
        self._sources: list[str] = []
        self.blocked = False
        """A driver call has not returned: time goes on without readings."""
        try:
            host.open()
            self._sources.append("gpu")
            host.open("gpu_event")
            self._sources.append("gpu_event")
        except Unavailable as why:
            if not self._sources:
                self.source = Source("gpu", SourceState.UNAVAILABLE, str(why), None, None)

    def run(self, seconds: int) -> Simulated:
        for _ in range(seconds):
            self.seconds += 1
            self.host.clock.step(1.0)
            for source in () if self.blocked else self._sources:
                for sample in self.host.read(source).samples:
                    self.store.ingest(sample)
            view = self.store.view(self.host.clock.monotonic_ns())
            self.judgement = self.engine.evaluate(view)
        return self

    def snapshot(self) -> Snapshot:
        return Snapshot(
            generation=self.seconds + 1,
            view=self.store.view(self.host.clock.monotonic_ns()),
            anchor=anchor(self.host.clock),
            judgement=self.judgement,
            host="node",
            sources=(self.source,),
            target=None,
            simulated="",
            recording=None,
            playback=None,
            watched_s=float(self.seconds),
        )

    def look_at(self, tables: frozenset[type[Table]]) -> None:
        self.looked_at = tables


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.getbasetemp()
    return build(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base, ())


@pytest.fixture
def simulated(tmp_path: Path, library: Path) -> Iterator[Make]:
    hosts: list[Host] = []

    def make(scenario: str, sys_root: Path | None = None) -> Simulated:
        folder = tmp_path / f"host{len(hosts)}"
        hosts.append(Host(folder, library, scenario, sys_root=sys_root))
        return Simulated(hosts[-1])

    yield make
    for host in hosts:
        host.end()


Make = Callable[..., Simulated]


def gpu_line(screen: str, number: int) -> str:
    """The line of one GPU in the panel of an overview."""
    rows = screen.splitlines()
    start = next(at for at, row in enumerate(rows) if row.startswith(" GPUs"))
    for row in rows[start + 1 :]:
        if row[2:4].strip() == str(number):
            return row
    raise AssertionError(f"no GPU {number} in:\n{screen}")


async def pages(stage: Stage, *keys: str) -> str:
    """All of a page that scrolls, after some keys."""
    seen = [await stage.press(*keys)]
    for _ in range(MOST_PAGES):
        following = await stage.press("pagedown")
        if following == seen[-1]:
            break
        seen.append(following)
    return "\n".join(seen)


# -- lost --------------------------------------------------------------------------------------


async def test_a_gpu_lost_while_watched_says_so_and_the_others_live_on(simulated: Make) -> None:
    feed = simulated(
        "gpu\n  busy 40\n  power 300\ngpu\n  busy 50\n  power 420\n  temp 61\n"
        "  pci 00000000:C1:00.0\n  lost 5.5 20"
    )
    async with dashboard(feed.run(5)) as stage:
        assert "420/" in gpu_line(await stage.settle(), 1)
        feed.run(5)
        screen = await stage.settle()
        assert "lost" in gpu_line(screen, 1)
        assert not any(old in gpu_line(screen, 1) for old in ("420", "61", "50"))
        assert "300/" in gpu_line(screen, 0)
        assert "GPU 1 (0000:C1:00.0) is lost" in screen
        feed.run(25)
        screen = await stage.settle()
        assert "420/" in gpu_line(screen, 1)
        assert "lost" not in screen


async def test_a_gpu_lost_from_the_start_keeps_its_place(simulated: Make) -> None:
    feed = simulated("gpu\n  lost\ngpu\n  busy 50\n  power 420")
    async with dashboard(feed.run(6)) as stage:
        screen = await stage.settle()
    assert "lost" in gpu_line(screen, 0)
    assert "420/" in gpu_line(screen, 1)


# -- absent, absurd ----------------------------------------------------------------------------


async def test_what_is_not_supported_is_not_available_and_why_is_told(simulated: Make) -> None:
    feed = simulated(
        """
        gpu
          busy 50
          fail nvmlDeviceGetPowerUsage not-supported
          fail field:185 not-supported
          fail field:186 not-supported
          fail nvmlDeviceGetFanSpeed not-supported
          fail nvmlDeviceGetTemperature* not-supported
        """
    )
    async with dashboard(feed.run(5)) as stage:
        assert gpu_line(await stage.settle(), 0).count("n/a") == 2
        told = await pages(stage, "i")
        assert "unsupported" in told
        assert "fan" in told


ABSURD = ("4294967295", "4294967", "17179869184", "16384.0 P", " -1 ", "122 %")


async def test_all_ones_are_never_shown_as_readings(simulated: Make) -> None:
    feed = simulated(
        """
        gpu
          busy 30
        gpu
          busy 50
          garbage nvmlDeviceGetPowerUsage
          garbage field:185
          garbage nvmlDeviceGetTemperature*
          garbage nvmlDeviceGetUtilizationRates
          garbage nvmlDeviceGetMemoryInfo*
          garbage nvmlDeviceGetClockInfo
          garbage nvmlDeviceGetFanSpeed
        """
    )
    async with dashboard(feed.run(12)) as stage:
        screen = await stage.settle()
        alone = await stage.press("1")
    for text in ABSURD:
        assert text not in screen
        assert text not in alone
    assert "absurd" in gpu_line(screen, 1)
    assert "absurd" not in gpu_line(screen, 0)
    assert "readings of GPU 1 cannot be believed" in screen
    assert "readings of GPU 0" not in screen


async def test_readings_that_fail_now_and_then_are_never_the_sum_of_processes(
    simulated: Make,
) -> None:
    feed = simulated(
        """
        gpu
          busy 50
          process 4001 1000 0.2
          process 4002 1000 0.2
          process 4003 1000 0.2
          fail nvmlDeviceGetUtilizationRates unknown every 2 5
          fail sample:1 not-supported
        """
    )
    shown = set()
    async with dashboard(feed) as stage:
        for _ in range(10):
            feed.run(1)
            shown.add(gpu_line(await stage.settle(), 0)[37:43].strip())
    assert shown == {"50", "error"}


# -- the driver --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "said"),
    [("mismatch", "version"), ("not-loaded", "not loaded")],
)
async def test_a_driver_that_does_not_start_is_told_with_its_reason(
    simulated: Make, code: str, said: str
) -> None:
    feed = simulated(f"fail nvmlInit {code}\ngpu")
    async with dashboard(feed.run(1), WIDE) as stage:
        screen = await stage.settle()
    assert "no GPU readings: " in screen
    assert said in screen.split("no GPU readings: ")[1].splitlines()[0]


# -- processes ---------------------------------------------------------------------------------


async def test_a_list_that_is_denied_is_never_no_processes(simulated: Make) -> None:
    feed = simulated(
        "gpu\n  busy 50\n  process 4001 2000 1\n"
        "  fail nvmlDeviceGetComputeRunningProcesses* no-permission\n"
        "  fail nvmlDeviceGetGraphicsRunningProcesses* no-permission\n"
        "  fail nvmlDeviceGetMPSComputeRunningProcesses* no-permission"
    )
    async with dashboard(feed.run(8), WIDE) as stage:
        assert "processes: denied" in await stage.settle()
        told = await pages(stage, "i")
    assert "no list: denied" in told


async def test_odd_processes_are_listed_without_odd_numbers(simulated: Make) -> None:
    feed = simulated(
        "gpu\n  busy 50\n  process 4294967295 100 0.1\n  process 4001 - 0.3\n  process 4002 900 0.6"
    )
    async with dashboard(feed.run(8), WIDE) as stage:
        screen = await stage.press("1")
        told = await pages(stage, "i")
    assert "pid 4002" in screen
    assert "pid 4001" in screen
    for text in ("-1", "4294967295", "16777216"):
        assert text not in screen
    assert "memory unsupported" in told or "memory implausible" in told


async def test_a_list_in_another_layout_is_whole_or_said_to_be_unreadable(simulated: Make) -> None:
    feed = simulated(
        "gpu\n  busy 50\n  process_struct_bytes 32\n"
        + "".join(f"  process {4001 + n} 900 0.3\n" for n in range(3))
    )
    async with dashboard(feed.run(8), WIDE) as stage:
        told = await pages(stage, "i")
    whole = all(f"pid {4001 + n}" in told for n in range(3))
    assert whole or "no list: " in told
    assert "pid 0" not in told
    assert "-1" not in told.split("Processes")[1].split("Now")[0]


async def test_a_process_that_ended_is_gone_from_the_list(simulated: Make) -> None:
    feed = simulated("gpu\n  busy 50\n  process 4001 900 0.5\n  process 4002 900 0.5 0 10.5")
    async with dashboard(feed.run(8), WIDE) as stage:
        assert "pid 4002" in await stage.settle()
        feed.run(8)
        screen = await stage.press("1")
    assert "pid 4001" in screen
    assert "pid 4002" not in screen


async def test_utilisation_is_the_devices_and_not_the_sum_of_its_processes(simulated: Make) -> None:
    feed = simulated(
        "gpu\n  busy 50\n" + "".join(f"  process {4001 + n} 900 0.4\n" for n in range(3))
    )
    async with dashboard(feed.run(10)) as stage:
        assert "    50  " in gpu_line(await stage.settle(), 0)


async def test_a_call_that_does_not_return_leaves_no_old_value_that_looks_alive(
    simulated: Make,
) -> None:
    feed = simulated("gpu\n  busy 50\n  power 420\n  temp 61\ngpu\n  busy 50")
    async with dashboard(feed.run(8)) as stage:
        await stage.settle()
        feed.blocked = True
        feed.run(6)
        line = gpu_line(await stage.settle(), 0)
        assert "no reading for 6 s" in line
        assert "420" not in line
        feed.blocked = False
        feed.run(2)
        assert "420/" in gpu_line(await stage.settle(), 0)


# -- time --------------------------------------------------------------------------------------


async def test_work_that_falls_between_two_looks_is_seen(simulated: Make) -> None:
    feed = simulated("gpu\n  busy square 1 0.3 100 0 0.1\n  buffer util 166.7 100")
    shown = []
    async with dashboard(feed.run(5)) as stage:
        for _ in range(20):
            feed.run(1)
            shown.append(int(gpu_line(await stage.settle(), 0)[37:43]))
    assert all(20 <= value <= 40 for value in shown), shown
    assert 27 <= sum(shown) / len(shown) <= 33, shown


async def test_short_throttling_is_told_as_its_share_of_the_time(simulated: Make) -> None:
    feed = simulated("gpu\n  busy 95\n  reasons square 2 0.1 0x20 0\n  sm_clock 1980")
    async with dashboard(feed.run(20)) as stage:
        told = await pages(stage, "i")
    line = next(row for row in told.splitlines() if "throttle sw thermal" in row)
    assert "10 % of the time" in line


async def test_throttling_is_named_with_its_reason(simulated: Make) -> None:
    feed = simulated(
        "gpu\n  busy 97\n  sm_clock 345\n  temp 90\n  reasons 0x48\n  sm_clock_boost 1980\n"
        "gpu\n  busy 97"
    )
    async with dashboard(feed.run(40), WIDE) as stage:
        screen = await stage.settle()
    assert "clocks held: hardware slowdown," in screen
    assert "hardware thermal slowdown" in screen
    assert "heat limits GPU 0" in screen


# -- health ------------------------------------------------------------------------------------


async def test_errors_repairs_and_a_bad_link_are_flagged(simulated: Make) -> None:
    feed = simulated(
        """
        gpu
          busy 50
        gpu
          busy 95
          ecc_uncorrected 3
          rows_pending 1
          pcie_gen 1
          pcie_gen_max 5
          pcie_width 4
          pcie_width_max 16
          pci 00000000:3B:00.0
          event 30.5 0x8 79
        """
    )
    async with dashboard(feed.run(60), WIDE) as stage:
        screen = await stage.press("1")
        findings = await stage.press("1", "6")
        told = await pages(stage, "0", "i")
    assert "Xid 79" in screen
    assert "ECC 3 uncorrected" in screen
    assert "row remap" in screen
    assert "PCIe x4 Gen1 of x16 Gen5" in screen
    assert "fell off the bus" in findings
    assert "not harmed" in " ".join(told.split())
    assert "Xid 79: fell off the bus" in told
    assert "memory-health" in told


async def test_a_link_that_is_lowered_for_idleness_is_not_flagged(simulated: Make) -> None:
    feed = simulated("gpu\n  busy 0\n  pcie_gen 1\n  pcie_gen_max 4\n  pcie_width 16")
    async with dashboard(feed.run(40), WIDE) as stage:
        screen = await stage.press("1")
    assert "PCIe x" not in screen
    assert "pcie-link-degraded" not in screen


# -- partitions, sleep, shared memory, many ---------------------------------------------------


MIG = """
gpu
  busy 40
gpu
  busy 50
  mig 1
  mig_device 7 0 1g.10gb 9856 16 1
  mig_device 9 0 2g.20gb 19968 32 2
  gpm_instance 7 sm 45
  gpm_instance 9 sm 80
  process 4001 2048 0.5 instance 7 0
  process 4002 8192 0.5 instance 9 0
"""


async def test_mig_devices_are_listed_with_memory_and_activity(simulated: Make) -> None:
    async with dashboard(simulated(MIG).run(8), WIDE) as stage:
        screen = await stage.press("1")
        told = await pages(stage, "i", "i")
    assert "   MIG" in gpu_line(screen, 1)
    assert "MIG 1g.10gb: 2.0/9.6 GiB, SM 45 %" in screen
    assert "MIG 2g.20gb: 8.0/19.5 GiB, SM 80" in screen
    assert "pid 4001" in told
    assert "on 1g.10gb" in told


async def test_a_gpu_that_is_closed_to_us_is_not_idle(simulated: Make) -> None:
    feed = simulated("gpu\n  fail nvmlDeviceGetHandleByIndex_v2 no-permission\ngpu\n  busy 60")
    async with dashboard(feed.run(5)) as stage:
        screen = await stage.settle()
    assert "no access" in screen
    assert "60" in gpu_line(screen, 1)


async def test_a_gpu_that_sleeps_is_asleep_and_not_faulty(simulated: Make, tmp_path: Path) -> None:
    bus = PciTree(tmp_path / "sys")
    bus.add("0000:10:00.0", status="suspended")
    bus.add("0000:11:00.0")
    feed = simulated(
        "gpu\n  pci 00000000:10:00.0\n  sleeps 0\ngpu\n  pci 00000000:11:00.0\n  busy 60",
        bus.root,
    )
    async with dashboard(feed.run(5)) as stage:
        screen = await stage.settle()
    assert "asleep" in gpu_line(screen, 0)
    assert gpu_line(screen, 0).startswith("   0")
    assert "60" in gpu_line(screen, 1)


async def test_eight_gpus_fit_80x24_with_their_processes(simulated: Make) -> None:
    feed = simulated(
        "".join(
            f"gpu\n  busy {10 * n}\n  process {4001 + n} {1000 * (n + 1)} 1\n" for n in range(8)
        )
    )
    async with dashboard(feed.run(8)) as stage:
        overview = await stage.settle()
        alone = await stage.press("1")
    for number in range(8):
        gpu_line(overview, number)
        assert f"pid {4001 + number}" in alone
    assert "(pid 4008), (pid 4007) and 6 more" in " ".join(overview.split())
    assert max(len(row) for row in alone.splitlines()) <= 80


async def test_sixteen_gpus_fit_80x24(simulated: Make) -> None:
    feed = simulated("".join(f"gpu\n  busy {5 * n}\n  power {100 + n}\n" for n in range(16)))
    async with dashboard(feed.run(5)) as stage:
        screen = await stage.settle()
    for number in range(16):
        assert f" {number:>2} " in screen
        assert f" {100 + number} " in screen


# -- the screen of one GPU ---------------------------------------------------------------------


async def test_the_screen_of_a_gpu_shows_every_table_and_goes_to_the_others(
    simulated: Make,
) -> None:
    feed = simulated(
        "gpu\n  busy 40\n  pci 00000000:1B:00.0\n  links 2\n  process 4001 900 1\n"
        "gpu\n  busy 60\n  pci 00000000:43:00.0"
    )
    async with dashboard(feed.run(12)) as stage:
        told = await pages(stage, "i")
        assert feed.looked_at == {GpuProcess}
        for head in ("Processes", "Now", "Activity inside", "Health", "NVLinks", "Events"):
            assert f" {head}" in told
        assert "0000:1B:00.0" in told
        assert "pid 4001" in told
        assert "nvml" in told
        other = await pages(stage, "i", *["pageup"] * MOST_PAGES)
        assert "0000:43:00.0" in other
        back = await stage.press("escape")
        assert feed.looked_at == frozenset()
    assert " GPUs" in back


async def test_the_screen_of_a_gpu_follows_it_and_stands_still_while_paused(
    simulated: Make,
) -> None:
    feed = simulated("gpu\n  busy 40\n  power step 0 300 10.5 500")
    async with dashboard(feed.run(8)) as stage:
        assert "300/" in await stage.press("i")
        await stage.press("escape", "p", "i")
        feed.run(6)
        assert "300/" in await stage.settle()
        assert "300/" in await stage.press("down", "up")
        await stage.press("escape", "p", "i")
        feed.run(1)
        assert "500/" in await stage.settle()


async def test_a_host_without_gpus_says_that_there_is_none_to_show(simulated: Make) -> None:
    feed = simulated("fail nvmlInit not-loaded\ngpu")
    async with dashboard(feed.run(1)) as stage:
        assert "no GPU to show" in await stage.press("i")


# -- the report --------------------------------------------------------------------------------


def report_of(feed: Simulated) -> str:
    """`bottletop report` on what was watched, as text."""
    return report.text(
        Watch(
            judgement=feed.engine.summary(),
            view=feed.store.view(feed.host.clock.monotonic_ns()),
            anchor=anchor(feed.host.clock),
            sources=(feed.source,),
            target=None,
            watched_s=float(feed.seconds),
        )
    )


def test_the_report_tells_faults_and_partitions_like_the_screens(simulated: Make) -> None:
    told = report_of(
        simulated(
            "gpu\n  busy 95\n  pcie_gen 1\n  pcie_gen_max 5\n  pcie_width 4\n  pcie_width_max 16\n"
            "  ecc_uncorrected 3\n  rows_pending 1\n  event 5.5 0x8 79\n  reasons 0x40\n"
            f"{MIG}gpu\n  lost\n"
            "gpu\n  fail nvmlDeviceGet*RunningProcesses* no-permission\n  process 4009 1 1\n"
        ).run(50)
    )
    rows = told.splitlines()
    assert "  Xid 79, ECC 3 uncorrected, row remap pending" in rows
    assert "  PCIe x4 Gen1 of x16 Gen5" in rows
    assert "  clocks held: hardware thermal slowdown" in rows
    assert "  MIG 1g.10gb: 2.0/9.6 GiB, SM 45 %" in rows
    assert "  processes: denied" in rows
    assert any("lost" in row for row in rows if row.startswith("GPU 3 "))
    assert "CRIT   recovery-required" in told
    assert "CRIT   xid-event" in told
