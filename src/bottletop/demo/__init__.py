"""Scenarios that anyone can run: real slow processes, and a simulated GPU that follows them."""

from __future__ import annotations

from bottletop.demo.scenarios import SCENARIOS, DemoUnavailable, Scenario, find, reached

__all__ = ["SCENARIOS", "DemoUnavailable", "Scenario", "find", "reached"]
