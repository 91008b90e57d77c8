"""Rules power-cap-at-limit, power-limit-lowered, power-cap-below-limit and power-brake.

One event bit, "software power cap", means four different things. Which one it is follows from the
limit against the card's default and from the power drawn against the limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bottletop.model import Confidence, Severity
from bottletop.rules import clocks, load
from bottletop.rules.base import Answer, Fires, KofN, Quiet, Role, Rule, Threshold, evidence
from bottletop.rules.clocks import POWER_BRAKE, bit_share, limited_share, loaded_clock, lost_to
from bottletop.rules.drawn import drawn_evidence, mean_power_w, since_limit_set_s
from bottletop.rules.entities import gpu_name
from bottletop.store import Missing
from bottletop.tables import Gpu
from bottletop.units import percent_text as pct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bottletop.model import Evidence
    from bottletop.store import View

_NEEDS = (*clocks.NEEDS, *load.NEEDS, Gpu.index, Gpu.power_limit_w, Gpu.energy_mj, Gpu.power_w)
_BELOW = Threshold(0.85, "", "judgement", "power drawn, as part of the limit")
_BUSY = Threshold(0.80, "", "judgement", "utilisation that counts as load")


def _capped_evidence(
    gpu: str, share: float, threshold: float, span_s: float
) -> tuple[Evidence, ...]:
    value = round(100 * share, 1)
    return (
        evidence(
            Gpu.throttle_sw_power_ns,
            gpu,
            value,
            unit="% of time",
            threshold=100 * threshold,
            span_s=span_s,
        ),
    )


class PowerCapAtLimit(Rule):
    """The GPU runs at its design power: normal at full load.

    What
        Clocks are trimmed to stay within the power limit, the limit is the card's own, and the card
        draws nearly all of it.
    Why
        Every healthy card under a dense load sets this bit. Tools that warn on it cry wolf; it is
        said here so that nobody looks for a fault.
    How judged
        Software power cap at least 20 % of the last 30 s, power at least 92 % of the limit, limit
        at least 97 % of the default, where that is told. It is advice, not information, when the
        clock stays more than 20 % below the reference for five minutes.
    What to do
        Nothing. More speed needs a card with more power, or less work a watt (lower precision).
    When it is wrong
        The default limit of a card that the vendor set low is not visible as low.
    References
        Azure's node health checks leave this bit out (azurehpc-health-checks 595); DCGM and Netdata
        warn on any time in it.
    """

    code = "power-cap-at-limit"
    title = "at design power"
    severity = Severity.INFO
    role = Role.EXPLAINS
    scope = Gpu
    needs = (*_NEEDS, Gpu.power_limit_default_w)
    mutes = ("clocks-held-low",)
    thresholds: ClassVar[Mapping[str, Threshold]] = {
        "time": Threshold(0.20, "", "judgement", "share of time limited by the power cap"),
        "power": Threshold(0.92, "", "judgement", "power drawn, as part of the limit"),
        "limit": Threshold(0.97, "", "judgement", "limit, as part of the card's default"),
        "clock": Threshold(0.20, "", "judgement", "missing clock over 5 min that makes it advice"),
    }
    advice = "Normal at full load; nothing to do."
    refuted_by = "Power stays well below the limit while the cap is active."
    next_check = "nvidia-smi -q -d POWER shows drawn power, enforced and default limit."

    def judge(self, view: View, key: str, limits: Mapping[str, float]) -> Answer:
        """Tell design power from a cap that costs something."""
        limit = view.number(Gpu.power_limit_w, key)
        default = view.last(Gpu.power_limit_default_w, key)
        told = isinstance(default, (int, float))
        share = limited_share(view, key, "power", self.window_s)
        if share < limits["time"]:
            return Quiet()
        if isinstance(default, (int, float)) and limit < limits["limit"] * default:
            return Quiet()
        power = mean_power_w(view, key, self.window_s)
        if power < limits["power"] * limit:
            return Quiet(near=power >= 0.85 * limit)
        what = "design power" if told else "power limit"
        return Fires(
            text=(
                f"{gpu_name(view, key)} runs at its {what}: {power:.0f} of {limit:.0f} W, "
                "normal at full load"
            ),
            evidence=(
                *_capped_evidence(key, share, limits["time"], self.window_s),
                evidence(
                    Gpu.power_w,
                    key,
                    round(power, 1),
                    threshold=round(limits["power"] * limit, 1),
                    span_s=self.window_s,
                ),
                evidence(Gpu.power_limit_w, key, limit),
            ),
            severity=Severity.ADVICE if self._slow_for_long(view, key, limits["clock"]) else None,
            confidence=Confidence.MEDIUM if told else Confidence.LOW,
        )

    @staticmethod
    def _slow_for_long(view: View, key: str, missing: float) -> bool:
        try:
            clock = loaded_clock(view, key, 300)
        except Missing:
            return False  # no maximum clock is told
        slow = clock is not None and clock.deficit > missing
        return slow and load.load(view, key, 300).span_s >= 290


class PowerLimitLowered(Rule):
    """Someone set the power limit below the card's default, and it costs speed.

    What
        The enforced limit is below 90 % of the card's default limit and holds the clock down.
    Why
        Limits are lowered for heat, racks or thrift and then forgotten; the card then looks healthy
        and fully used, only slower than its twin.
    How judged
        Limit below 0.9 of the default, and the software power cap active at least 10 % of the last
        30 s. A warning when the clock lost under load is worth 5 % of the GPU or more, else advice.
        If software asked for more than is enforced, something out of band (BMC) caps it. Where
        nothing tells how long the cap was active (one snapshot), the low limit alone is advice. A
        busy GPU that stays below 85 % of even the lowered limit is power-cap-below-limit's.
    What to do
        nvidia-smi -pl WATTS raises the limit (root); where it is enforced from outside, look in the
        BMC's power policy; or accept it, it may be deliberate.
    When it is wrong
        Deliberate limits: work per joule is often best at about 70 % of the default.
    References
        NVML fields 187 to 192 (limits and their limiters).
    """

    code = "power-limit-lowered"
    title = "power limit set below default"
    severity = Severity.WARN
    role = Role.CAUSE
    blames = "a lowered power limit"
    scope = Gpu
    needs = (*_NEEDS, Gpu.power_limit_default_w, Gpu.power_limit_requested_w)
    fire = KofN(5, 8)
    mutes = ("clocks-held-low", "power-cap-at-limit")
    thresholds: ClassVar[Mapping[str, Threshold]] = {
        "limit": Threshold(0.90, "", "judgement", "limit, as part of the card's default"),
        "time": Threshold(0.10, "", "judgement", "share of time limited by the power cap"),
        "time_near": Threshold(0.05, "", "judgement", "below this share it ends"),
        "loss": Threshold(0.05, "GPU-s/s", "judgement", "loss from which it is a warning"),
    }
    advice = (
        "Raise the limit with nvidia-smi -i GPU -pl WATTS (root) or in the BMC's power policy, or "
        "accept it if it is meant."
    )
    refuted_by = "Clock and throughput do not change with the limit back at its default."
    next_check = "nvidia-smi -q -d POWER shows requested, enforced and default limit."

    def judge(self, view: View, key: str, limits: Mapping[str, float]) -> Answer:
        """Compare the limit with the card's default and see whether it bites."""
        limit = view.number(Gpu.power_limit_w, key)
        default = view.number(Gpu.power_limit_default_w, key)
        if limit >= limits["limit"] * default:
            return Quiet()
        try:
            share = limited_share(view, key, "power", self.window_s)
        except Missing:
            return self._set_low(view, key, limit, default, limits)
        lost = lost_to(view, key, ("power",), self.window_s)
        if lost is None or share < limits["time"]:
            return Quiet(near=share >= limits["time_near"])
        if _held_before_limit(view, key, limit, self.window_s):
            return Quiet()
        clock = loaded_clock(view, key, self.window_s)
        slower = f", clock {pct(clock.deficit)} down" if clock is not None else ""
        return Fires(
            text=(
                f"power limit of {gpu_name(view, key)} is {limit:.0f} W, its default {default:.0f} "
                f"W: capped {pct(share)} of the time{slower}"
            ),
            evidence=self._evidence(view, key, limit, default, share, limits),
            lost_gpu_s_per_s=lost,
            severity=None if lost >= limits["loss"] else Severity.ADVICE,
        )

    def _set_low(
        self, view: View, key: str, limit: float, default: float, limits: Mapping[str, float]
    ) -> Answer:
        """The state alone, where nothing tells how long the cap was active: a single snapshot."""
        return Fires(
            text=(
                f"power limit of {gpu_name(view, key)} is {limit:.0f} W, its default {default:.0f} "
                "W; whether it costs speed cannot be read here"
            ),
            evidence=(
                evidence(
                    Gpu.power_limit_w, key, limit, threshold=round(limits["limit"] * default, 1)
                ),
                evidence(Gpu.power_limit_default_w, key, default),
            ),
            severity=Severity.ADVICE,
            confidence=Confidence.LOW,
        )

    def _evidence(
        self,
        view: View,
        key: str,
        limit: float,
        default: float,
        share: float,
        limits: Mapping[str, float],
    ) -> tuple[Evidence, ...]:
        items = [
            evidence(Gpu.power_limit_w, key, limit, threshold=round(limits["limit"] * default, 1)),
            evidence(Gpu.power_limit_default_w, key, default),
            *_capped_evidence(key, share, limits["time"], self.window_s),
        ]
        requested = view.last(Gpu.power_limit_requested_w, key)
        if isinstance(requested, (int, float)):
            who = "W, set by software" if requested <= limit else "W, capped lower out of band"
            items.append(evidence(Gpu.power_limit_requested_w, key, requested, unit=who))
        clock = loaded_clock(view, key, self.window_s)
        if clock is not None:
            items.append(
                evidence(Gpu.sm_clock_mhz, key, round(clock.mean_mhz), span_s=self.window_s)
            )
        return tuple(items)


def _held_before_limit(view: View, gpu: str, limit_w: float, span_s: float) -> bool:
    """Whether a fully loaded GPU stays well below its limit: then another limit is the one."""
    if load.load(view, gpu, span_s).busy < _BUSY.value:
        return False
    since_s = since_limit_set_s(view, gpu, span_s)
    return mean_power_w(view, gpu, since_s) <= _BELOW.value * limit_w


class PowerCapBelowLimit(Rule):
    """The GPU is power-capped while it draws far less than its limit allows.

    What
        The power cap is active under load, yet power stays at 85 % of the limit or less.
    Why
        Then the limit that counts is another one: a rail, a module or board budget, a table in the
        BMC, a missing power cable. Raising the visible limit changes nothing.
    How judged
        Software power cap at least 20 % of the last 30 s, utilisation at least 80 %, mean power
        from the energy counter at most 85 % of the enforced limit. A limit that was changed counts
        from its change on.
    What to do
        Power cables and supplies, the BMC's power and thermal tables, and on Grace the budget that
        CPU and GPU share.
    When it is wrong
        Power averaged over a second hides short peaks that did reach the limit; the energy counter
        shows means only.
    References
        A reported A100 capped at 240 of 400 W in an unsupported chassis
        (l4rz/reverse-engineering-dell-idrac-to-get-rid-of-gpu-throttling issue 3).
    """

    code = "power-cap-below-limit"
    title = "capped below its power limit"
    severity = Severity.WARN
    role = Role.CAUSE
    blames = "a power cap below the limit"
    scope = Gpu
    needs = _NEEDS
    fire = KofN(5, 8)
    mutes = ("clocks-held-low", "power-cap-at-limit", "power-limit-lowered")
    thresholds: ClassVar[Mapping[str, Threshold]] = {
        "time": Threshold(0.20, "", "judgement", "share of time limited by the power cap"),
        "power": _BELOW,
        "power_near": Threshold(0.90, "", "judgement", "above this part it ends"),
        "busy": _BUSY,
    }
    advice = (
        "Check power cables and connectors, the supply (PSU), the board's or module's power budget "
        "and the BMC's power tables: the limit that nvidia-smi shows is not the one that holds."
    )
    refuted_by = "Power reaches the limit within a second when a denser kernel runs."
    next_check = (
        "nvidia-smi -q -d POWER,PERFORMANCE while it runs; ipmitool sel list for power events."
    )

    def judge(self, view: View, key: str, limits: Mapping[str, float]) -> Answer:
        """Compare drawn power with the limit while the cap is active."""
        limit = view.number(Gpu.power_limit_w, key)
        share = limited_share(view, key, "power", self.window_s)
        if share < limits["time"]:
            return Quiet()
        span_s = since_limit_set_s(view, key, self.window_s)
        power = mean_power_w(view, key, span_s)
        busy = load.load(view, key, self.window_s, at_least_s=5).busy
        lost = self._lost(view, key)
        if busy < limits["busy"] or power > limits["power"] * limit:
            return Quiet(near=power <= limits["power_near"] * limit)
        return Fires(
            text=(
                f"{gpu_name(view, key)} is power-capped at {power:.0f} W, {pct(power / limit)} of "
                f"its {limit:.0f} W limit: another limit holds it"
            ),
            evidence=(
                *_capped_evidence(key, share, limits["time"], self.window_s),
                drawn_evidence(view, key, power, limits["power"] * limit, span_s),
                evidence(Gpu.power_limit_w, key, limit),
            ),
            lost_gpu_s_per_s=lost,
        )

    def _lost(self, view: View, key: str) -> float | None:
        """None where no maximum clock is told."""
        try:
            return lost_to(view, key, ("power",), self.window_s)
        except Missing:
            return None


class PowerBrake(Rule):
    """Hardware outside the card pulled the power brake.

    What
        The external power-brake signal slowed the GPU down.
    Why
        Supply, rack or BMC ask the card to shed load at once: clocks drop to half or less. It is a
        fault of the power path, not of the program.
    How judged
        Any growth of the driver's power-brake counter over the last 10 s, or its event bit in at
        least two of ten reads where there is no counter.
    What to do
        Event logs of BMC and rack power; supplies, redundancy, feed limits.
    When it is wrong
        Test modes of some servers assert the brake on purpose.
    References
        NVML field 271 and clocks event reason "hardware power brake slowdown".
    """

    code = "power-brake"
    title = "external power brake"
    severity = Severity.CRIT
    role = Role.CAUSE
    blames = "the power brake"
    scope = Gpu
    needs = (*clocks.NEEDS, *load.NEEDS, Gpu.index)
    window_s = 10
    fire = KofN(2, 5)
    clear = KofN(15, 15)
    mutes = ("clocks-held-low",)
    thresholds: ClassVar[Mapping[str, Threshold]] = {
        "reads": Threshold(0.20, "", "judgement", "share of reads with the bit, without a counter"),
    }
    advice = "Read the event logs of the BMC and the rack's power; check supplies and feeds."
    refuted_by = "The counter stands still while the clock stays low."
    next_check = "ipmitool sel list, and nvidia-smi -q -d PERFORMANCE for the active reasons."

    def judge(self, view: View, key: str, limits: Mapping[str, float]) -> Answer:
        """Look for any time under the brake."""
        try:
            share = view.growth(Gpu.throttle_power_brake_ns, key, self.window_s).per_s / 1e9
            braked = share > 0
        except Missing:
            view.number(Gpu.clock_event_reasons, key)
            reads = bit_share(view, key, POWER_BRAKE, self.window_s)
            if reads is None:
                raise
            share, braked = reads, reads >= limits["reads"]
        if not braked:
            return Quiet()
        share = min(1.0, share)
        return Fires(
            text=f"an external power brake slowed {gpu_name(view, key)} {pct(share)} of the time",
            evidence=(
                evidence(
                    Gpu.throttle_power_brake_ns,
                    key,
                    round(100 * share, 2),
                    unit="% of time",
                    threshold=0,
                    span_s=self.window_s,
                ),
            ),
            lost_gpu_s_per_s=self._lost(view, key),
        )

    def _lost(self, view: View, key: str) -> float | None:
        try:
            return lost_to(view, key, ("brake",), self.window_s)
        except Missing:
            return None
