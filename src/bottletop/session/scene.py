"""What a run knew at one moment of its recording: store, judgement, target and sources.

Events are delivered in their recorded order, so the store holds what the live one held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bottletop.model import (
    NO_VERDICT,
    NS_PER_S,
    Judgement,
    ProcessId,
    Source,
    SourceState,
    Target,
    TargetProcess,
)
from bottletop.session.events import Arrived, Evaluated
from bottletop.store import RAW_SPAN_S, Store
from bottletop.tables import Process, SourceHealth, TargetInfo

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bottletop.model import Sample
    from bottletop.session.events import Event
    from bottletop.store import View


class Scene:
    """Takes in recorded events; answers as the live run would have."""

    def __init__(self, now_ns: int) -> None:
        self.store = Store()
        self.judgement = Judgement(now_ns, NO_VERDICT)
        self.now_ns = now_ns
        """The latest moment that any event delivered so far speaks of."""
        self._tree: Sample | None = None
        """The newest sample of processes that has the root."""
        self._has_root = False
        self._names: dict[str, str] = {}
        self._notes: dict[str, str] = {}

    def deliver(self, event: Event) -> None:
        """Take in the next event."""
        self._note(event)
        if isinstance(event, Arrived):
            self.store.ingest(event.sample)

    def deliver_many(self, events: Iterable[Event]) -> None:
        """Take in the next events, faster than one by one."""
        samples = []
        for event in events:
            self._note(event)
            if isinstance(event, Arrived):
                samples.append(event.sample)
        self.store.ingest_many(samples)

    def _note(self, event: Event) -> None:
        if isinstance(event, Arrived):
            sample = event.sample
            self.now_ns = max(self.now_ns, sample.t_ns)
            if sample.table is Process:
                self._has_root = any(row.values[Process.is_root.index] == 1 for row in sample.rows)
                self._tree = sample if self._has_root else self._tree
            elif sample.table is TargetInfo:
                self._describe(sample)
        elif isinstance(event, Evaluated):
            self.judgement = event.judgement
            self.now_ns = max(self.now_ns, event.judgement.t_ns)

    def view(self) -> View:
        """The store as of now."""
        return self.store.view(self.now_ns)

    def _describe(self, sample: Sample) -> None:
        for row in sample.rows:
            name = row.values[TargetInfo.process.index]
            notes = row.values[TargetInfo.notes.index]
            self._names[row.key] = name if isinstance(name, str) else ""
            self._notes[row.key] = notes if isinstance(notes, str) else ""

    def target(self) -> Target | None:
        """The attached process tree, rebuilt from its rows; None while there is none."""
        if self._tree is None:
            return None
        members: list[TargetProcess] = []
        root = None
        for row in self._tree.rows:
            try:
                process = ProcessId.parse(row.key)
            except ValueError:
                continue  # a key that no recorder of ours wrote
            parent = row.values[Process.parent_pid.index]
            name = row.values[Process.process.index]
            role = row.values[Process.role.index]
            member = TargetProcess(
                process,
                parent if isinstance(parent, int) else 0,
                name if isinstance(name, str) else "",
                role if isinstance(role, str) else "",
            )
            if row.values[Process.is_root.index] == 1 and root is None:
                root = member
                members.insert(0, member)
            else:
                members.append(member)
        if root is None:
            return None
        key = root.id.key
        notes = self._notes.get(key, "")
        return Target(
            root.id,
            self._names.get(key) or root.name,
            tuple(members) if self._has_root else (),
            gone=not self._has_root,
            notes=(notes,) if notes else (),
        )

    def sources(self) -> tuple[Source, ...]:
        """Health of every source, as the run wrote it down."""
        view = self.view()
        return tuple(self._source(view, name) for name in view.keys(SourceHealth))

    def _source(self, view: View, name: str) -> Source:
        state = view.last(SourceHealth.state, name)
        took_s = view.last(SourceHealth.took_s, name)
        try:
            known = SourceState(state) if isinstance(state, int) else SourceState.FAILED
        except ValueError:
            known = SourceState.FAILED
        return Source(
            name,
            known,
            view.text(SourceHealth.reason, name),
            took_s if isinstance(took_s, (int, float)) else None,
            self._age_s(view, name),
        )

    @staticmethod
    def _age_s(view: View, name: str) -> float | None:
        """Seconds since the source last gave something: its reads grew and its failures did not."""
        reads = view.series(SourceHealth.reads, name, RAW_SPAN_S)
        failures = view.series(SourceHealth.failures, name, RAW_SPAN_S)
        given = [r - f for r, f in zip(reads.values, failures.values, strict=True)]
        for at in range(len(given) - 1, 0, -1):
            if given[at] > given[at - 1]:
                return (view.now_ns - reads.t_ns[at]) / NS_PER_S
        return None
