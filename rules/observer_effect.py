"""Rule observer-effect."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bottletop.model import Severity
from bottletop.rules.base import Answer, Fires, Quiet, Role, Rule, Threshold, evidence
from bottletop.store import Missing
from bottletop.tables import Own
from bottletop.units import percent_text as pct
from bottletop.units import seconds_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.store import View

OWN_KEY = "bottletop"


class ObserverEffect(Rule):
    """bottletop itself costs enough to be part of the picture.

    What
        Our own driver calls or CPU time are no longer negligible on this host.
    Why
        Driver calls serialise with the target's on a lock in the driver. A monitor that polls
        carelessly takes frames and throughput from what it watches, and none of them says so.
    How judged
        Time inside driver calls at least 5 % of the last 30 s, or a driver read that takes 50 ms or
        more at the 95th percentile, or our own CPU at least 20 % of a core.
    What to do
        Nothing much: readings slow down by themselves when the driver is slow. Stop other monitors
        that poll the same driver.
    When it is wrong
        A slow driver (wake-up of a card without persistence mode, a card in trouble) makes our
        calls long without our asking often.
    References
        MangoHud issues 1307 and 2104 (cost of careless polling, measured); zml issue 766.
    """

    code = "observer-effect"
    title = "bottletop is part of the load"
    severity = Severity.INFO
    role = Role.EXPLAINS
    needs = (Own.nvml_ns, Own.nvml_p95_s, Own.cpu_ns)
    thresholds: ClassVar[Mapping[str, Threshold]] = {
        "driver": Threshold(0.05, "", "judgement", "share of time inside driver calls"),
        "call": Threshold(0.05, "s", "judgement", "95th percentile of a driver read"),
        "cpu": Threshold(0.20, "cores", "judgement", "our own CPU"),
        "warn": Threshold(0.25, "", "judgement", "time in driver calls that makes it a warning"),
        "near": Threshold(0.70, "", "judgement", "part of a limit that keeps it alive"),
    }
    advice = (
        "Stop other monitors that poll the same driver; turn on persistence mode if calls are slow "
        "on an idle card."
    )
    refuted_by = "The target's pass times do not change when bottletop ends."
    next_check = "Time the target for a minute with and without bottletop."

    def judge(self, view: View, key: str, limits: Mapping[str, float]) -> Answer:
        """Hold our own cost against the limits."""
        del key
        cpu = view.growth(Own.cpu_ns, OWN_KEY, self.window_s).per_s / 1e9
        driver = self._driver_share(view)
        call = view.last(Own.nvml_p95_s, OWN_KEY)
        call_s = call if isinstance(call, (int, float)) else 0.0
        measured = (
            (driver, "driver", f"driver calls take {pct(driver)} of the time"),
            (call_s, "call", f"a driver read takes {seconds_text(call_s)}"),
            (cpu, "cpu", f"our own CPU is {pct(cpu)} of a core"),
        )
        said = [text for value, name, text in measured if value >= limits[name]]
        if not said:
            near = any(value >= limits["near"] * limits[name] for value, name, _ in measured)
            return Quiet(near=near)
        return Fires(
            text=f"bottletop is part of the load: {', '.join(said)}",
            evidence=(
                evidence(
                    Own.nvml_ns,
                    OWN_KEY,
                    round(100 * driver, 1),
                    unit="% of time",
                    threshold=100 * limits["driver"],
                    span_s=self.window_s,
                ),
                evidence(Own.nvml_p95_s, OWN_KEY, call_s, threshold=limits["call"]),
                evidence(
                    Own.cpu_ns,
                    OWN_KEY,
                    round(cpu, 2),
                    unit="cores",
                    threshold=limits["cpu"],
                    span_s=self.window_s,
                ),
            ),
            severity=Severity.WARN if driver >= limits["warn"] else None,
        )

    def _driver_share(self, view: View) -> float:
        try:
            return view.growth(Own.nvml_ns, OWN_KEY, self.window_s).per_s / 1e9
        except Missing:
            return 0.0  # no driver on this host, so no calls
