"""What the demo can show: which real program runs, and on what kind of simulated card.

A scenario sets physical circumstances only (cooling, power limit, another process). Nothing that
samples, judges or records learns its name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bottletop.demo.gpu_model import Card
from bottletop.model import Severity, VerdictState

if TYPE_CHECKING:
    from pathlib import Path

    from bottletop.demo.run import RunningDemo
    from bottletop.model import Judgement


class DemoUnavailable(Exception):
    """The scenario cannot be had here; the message is one line that says why."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One thing to look at, and what bottletop should find."""

    name: str
    title: str
    about: str
    expected: str | None
    """Code that should lead the verdict; None: nothing at warn or above."""
    program: tuple[str, ...]
    """Arguments of `bottletop.demo.child`."""
    card: Card = field(default_factory=Card)
    neighbour: tuple[str, ...] = ()
    """Arguments of a second, unrelated process on the same GPU."""
    needs_disk: bool = False
    real_gpu: bool = False
    """Can be had on a real GPU through torch."""
    needs_s: float = 30.0
    """Watching this long is enough for the verdict."""

    def start(self, *, real_gpu: bool = False, folder: Path | None = None) -> RunningDemo:
        """Start the processes and return once they run steadily. Raises `DemoUnavailable`.

        `folder` is the working folder (default: the current one), where a data file may go.
        """
        from bottletop.demo.run import start

        return start(self, real_gpu=real_gpu, folder=folder)


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        name="cpu-starved",
        title="GPU waits for one core",
        about="decodes, resizes and tokenises in the loop that also runs the model",
        expected="gpu-starved-cpu",
        program=("inline",),
        real_gpu=True,
    ),
    Scenario(
        name="io-starved",
        title="GPU waits for the disk",
        about="reads every batch straight from the disk before it runs it",
        expected="gpu-starved-io",
        program=("from-disk",),
        needs_disk=True,
    ),
    Scenario(
        name="bursty",
        title="little demand, nothing wrong",
        about="serves requests that come at random moments; idle means nobody asked",
        expected=None,
        program=("on-request",),
        real_gpu=True,
    ),
    Scenario(
        name="healthy",
        title="GPU kept busy, one core polls",
        about="prefetches in a second thread; the busy core only waits for the GPU",
        expected=None,
        program=("prefetching", "--spin"),
        real_gpu=True,
    ),
    Scenario(
        name="throttled",
        title="GPU too hot",
        about="a healthy load on a badly cooled card: clocks fall to hold the temperature",
        expected="thermal-throttle",
        program=("prefetching",),
        card=Card(thermal_resistance_c_per_w=0.30, start_temp_c=79.0),
    ),
    Scenario(
        name="power-capped",
        title="power limit set low",
        about="a healthy load on a card whose power limit is half its default",
        expected="power-limit-lowered",
        program=("prefetching",),
        card=Card(power_limit_w=175.0),
    ),
    Scenario(
        name="contended",
        title="two processes, one GPU",
        about="another process runs on the same GPU and each pass takes twice as long",
        expected="gpu-contended",
        program=("prefetching", "--pass-s", "0.2"),
        neighbour=("prefetching", "--pass-s", "0.3"),
    ),
)


def find(name: str) -> Scenario:
    """Look a scenario up. Raises ValueError with one line that lists the known ones."""
    for scenario in SCENARIOS:
        if scenario.name == name:
            return scenario
    known = ", ".join(scenario.name for scenario in SCENARIOS)
    raise ValueError(f"no scenario {name!r}; known: {known}")


def reached(scenario: Scenario, judgement: Judgement) -> bool:
    """Whether the verdict, over the whole watch, is what the scenario should lead to.

    With an expected code, it has to lead the verdict. Without one, nothing at warn or above may
    have been found, and the verdict may not name a bottleneck or be unable to tell.
    """
    verdict = judgement.verdict
    if scenario.expected is not None:
        return verdict.state is VerdictState.BOTTLENECK and verdict.code == scenario.expected
    if verdict.state not in (VerdictState.CLEAR, VerdictState.NO_DEMAND):
        return False
    return all(finding.severity < Severity.WARN for finding in judgement.findings)
