"""Time the stages of a Python program where they happen, for `bottletop attach` to read.

    from bottletop.probe import stage

    with stage("preprocess"):
        batch = decode(request)

    @stage("forward")
    def forward(batch): ...

`stage(name)` is a context manager and a decorator, for functions, methods, coroutines and
generators (where each item produced is one pass). Stages nest; threads, asyncio tasks, forked and
spawned processes are kept apart. Call `stage(name)` where it is used: a kept object works too, but
costs twice as much. Wall time is measured: around asynchronous GPU work that is the launch, not
the kernel. Under `torch.compile(fullgraph=True)` keep stages outside of the compiled function.

A program that must also run where bottletop is not installed can begin with

    try: from bottletop.probe import stage
    except ImportError:
        import contextlib; stage = contextlib.contextmanager(lambda name: (yield))

The probe raises nothing of its own into the program, prints nothing, and starts no thread, socket,
signal handler or exit hook. `BOTTLETOP_PROBE=0` in the environment turns it off at import; three
errors of its own turn it off for good. It has no dependency and runs on CPython 3.8 to 3.14.

Shared memory, layout 1
-----------------------
One memfd named "bottletop-probe-1" a process, made at the first `stage()` call, found through
/proc/PID/fd by readers of the same user: no path, nothing to clean up, gone with the process. Its
size is sealed, so that nobody can truncate it under the program, and what is in use is allocated
before it is touched, so that a full memory cannot turn a store into SIGBUS. All words are unsigned
64 bit in the byte order of the host. All times are CLOCK_MONOTONIC nanoseconds.

    word   header
    0      magic "BTPROBE1"
    1      layout version
    2      size of the memory in bytes
    3, 4   pid as the process sees it, its start time (field 22 of /proc/self/stat, 0: unknown)
    5, 6   CLOCK_MONOTONIC and CLOCK_REALTIME at creation: the clock pair
    7      state: 1 on, 2 turned off by its own errors
    8      internal errors
    9      generation: forks between the first process of this program and this one
    10     stages named so far
    11     cells used so far, shared ones included
    12     flags: 1 a stage ran in its shared cell, 2 a stage did not fit and counts as "(other)"
    13     sys.hexversion

    byte 512    names: 32 of 64 bytes, UTF-8 padded with NUL; the last one is "(other)"
    byte 4096   cells of 168 words; the first 32 are the shared cells of stages 0 to 31

    word   cell
    0      stage index + 1; 0: never used
    1      start of the pass under way, 0: none (shared cell: sum of the starts, modulo 2**64)
    2      shared cell: passes under way; else unused
    3      ns spent in nested stages, of completed passes
    4      ns of the longest completed pass
    5      native id of the thread that the cell was last bound to
    6, 7   unused
    8+b    completed passes in histogram bucket b, for b in 0..79
    88+b   ns in them

Bucket b holds the durations d with (d * d).bit_length() == b: two buckets an octave; the last one
also takes all that is longer (13 minutes). So passes = sum of words 8..87, inclusive ns = sum of
words 88..167, self ns = inclusive - nested.

A cell belongs to at most one pass at a time, and only the thread that runs that pass writes it,
with plain stores: totals are exact and a pass that hangs shows its start. A thread keeps one cell a
stage while it lives and leaves it, totals included, to a later thread; passes that overlap
(asyncio, recursion) take spare cells. When no cell is left, passes share the stage's shared cell
under a lock. A reader takes two snapshots and accepts what did not change between them.
"""

from __future__ import annotations

import os
import sys
from _thread import RLock, _local, get_native_id
from contextvars import ContextVar
from time import monotonic_ns, time_ns

TYPE_CHECKING = False  # typing is a megabyte that a program may do without
if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator
    from mmap import mmap
    from types import TracebackType
    from typing import Any, Literal, TypeVar

    F = TypeVar("F")
    Slot = list[Any]
    Frame = list[Any]

__all__ = ["stage", "status"]

MEMFD_NAME = "bottletop-probe-1"
MAGIC = int.from_bytes(b"BTPROBE1", sys.byteorder)
LAYOUT = 1
SIZE_BYTES = 1 << 20
STEP_BYTES = 1 << 16  # allocated at a time, so that a process pays for the cells it uses
NAMES_AT, NAME_BYTES, MAX_STAGES = 512, 64, 32
CELLS_AT, CELL_WORDS, BUCKETS = 4096, 168, 80
MAX_CELLS = (SIZE_BYTES - CELLS_AT) // (8 * CELL_WORDS)
OTHER = MAX_STAGES - 1
MAX_ERRORS = 3
MAX_CACHED_NAMES = 256  # a thread; names made up at run time must not grow the program

# Where a long has 64 bits it is the same, but numbers beyond 30 bits cost a third less to store.
_WORD: Literal["L", "Q"] = "L" if sys.maxsize > 1 << 32 else "Q"

_START, _UNDER_WAY, _NESTED, _LONGEST, _THREAD, _COUNTS, _SUMS = 1, 2, 3, 4, 5, 8, 88
_STATE, _ERRORS, _STAGES, _CELLS, _FLAGS = 7, 8, 10, 11, 12
_ON, _OFF_BY_ERRORS = 1, 2
_FLAG_SHARED, _FLAG_OTHER = 1, 2

# What makes a slot's exit take the slow way.
_SPARE, _IN_CONTEXT, _SKIPPED, _KEPT = 1, 2, 4, 8

# A slot is a list: 0 idle, None handed out, else the start of its pass; then these.
_SPAN, _STAGE, _TAKE, _DETACH = 1, 2, 3, 4

# A frame is a list: ns of nested stages, nested passes under way, since when, outer frame, done.
_IN_NESTED, _ACTIVE, _SINCE, _OUTER, _DONE = 0, 1, 2, 3, 4

_frame_of_context: ContextVar[Frame | None] = ContextVar("bottletop_stage", default=None)


class _SpanType(type):
    """What `contextlib.ExitStack` finds, which asks the class and passes the object.

    A with statement does not look here. So the methods that it calls need no parameter for the
    object, and a function that is passed exactly what it takes costs less to call.
    """

    @property
    def __enter__(cls) -> Callable[[Span], None]:
        return lambda span: span.__enter__()

    @property
    def __exit__(cls) -> Callable[..., None]:
        return lambda span, *raised: span.__exit__(*raised)


class Span(object, metaclass=_SpanType):
    """One pass of a stage. What `stage()` returns; not to be made otherwise."""

    __slots__ = ()

    def __enter__(self) -> None:
        """Begin the pass."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the pass; exceptions of the body go on."""

    def __call__(self, func: F) -> F:
        """Decorate `func` so that each of its calls is a pass of this stage."""
        return func


class _Off(Span):
    """Stands for every stage while the probe is off.

    Its methods are the cheapest calls that do nothing. To enter, a C function that takes no
    argument. To exit, a Python function that is passed just what it takes; before 3.11 a C function
    that takes anything and returns something false.
    """

    __slots__ = ()
    __enter__ = [].clear
    if sys.version_info >= (3, 11):  # noqa: UP036 - the program's Python, not ours

        @staticmethod
        def __exit__(kind: object, value: object, trace: object) -> None:
            pass

    else:
        __exit__ = type.__prepare__


_OFF = _Off()
_OFF_SLOT: Slot = [0, _OFF]


class _Region(object):
    """The shared memory of this process and the slots that write to it."""

    __slots__ = (
        "_allocated",
        "_fd",
        "_identity",
        "_map",
        "_view",
        "cells",
        "orphans",
        "slots",
        "spares",
        "stages",
        "words",
    )

    def __init__(self, generation: int) -> None:
        from mmap import mmap

        fd = _memfd()
        try:
            os.fchmod(fd, 0o600)
            os.ftruncate(fd, SIZE_BYTES)
            os.posix_fallocate(fd, 0, STEP_BYTES)
            self._allocated = STEP_BYTES
            self._map: mmap = mmap(fd, SIZE_BYTES)
            _mappings.append(self._map)
            _seal(fd)
            seen = os.fstat(fd)
            self._identity = (seen.st_dev, seen.st_ino)
        finally:
            os.close(fd)
        self._fd = self._find_own_fd()
        self._view = memoryview(self._map)
        self.words = self._view.cast(_WORD)
        self.stages: dict[bytes, int] = {}
        self.slots: list[Slot] = []
        self.spares: list[list[Slot]] = [[] for _ in range(MAX_STAGES)]
        self.orphans: list[Slot] = []
        self.cells = MAX_STAGES
        self._name(OTHER, b"(other)")
        self._write_header(generation)

    def _write_header(self, generation: int) -> None:
        words = self.words
        words[1] = LAYOUT
        words[2] = SIZE_BYTES
        words[3] = os.getpid()
        words[4] = _start_ticks()
        words[5] = monotonic_ns()
        words[6] = time_ns()
        words[_STATE] = _ON
        words[9] = generation
        words[_CELLS] = MAX_STAGES
        words[13] = sys.hexversion
        words[0] = MAGIC

    def _find_own_fd(self) -> int:
        """mmap keeps a duplicate of the descriptor, the only one left, and does not tell which."""
        for fd in range(4096):
            if self._is_mine(fd):
                return fd
        return -1

    def _is_mine(self, fd: int) -> bool:
        try:
            seen = os.fstat(fd)
        except OSError:
            return False
        return (seen.st_dev, seen.st_ino) == self._identity

    def _name(self, index: int, raw: bytes) -> None:
        start = NAMES_AT + index * NAME_BYTES
        self._view[start : start + len(raw)] = raw

    def stage_index(self, name: str) -> int:
        """Index of a stage, given one at its first use. Called with the lock held."""
        raw = name.encode("utf-8", "replace") or b"(unnamed)"
        if len(raw) >= NAME_BYTES:
            raw = raw[: NAME_BYTES - 1].decode("utf-8", "ignore").encode("utf-8")
        index = self.stages.get(raw)
        if index is None:
            index = len(self.stages)
            if index >= OTHER:
                self.words[_FLAGS] |= _FLAG_OTHER
                return OTHER
            self._name(index, raw)
            self.stages[raw] = index
            self.words[_STAGES] = len(self.stages)
        return index

    def cell(self, index: int, stage_index: int) -> memoryview:
        """Words of cell `index`, claimed for a stage."""
        start = CELLS_AT // 8 + index * CELL_WORDS
        words = self.words[start : start + CELL_WORDS]
        words[0] = stage_index + 1
        return words

    def slot(self, stage_index: int, name: str) -> Slot | None:
        """A slot that no pass uses, or None when all cells are taken. Called with the lock held."""
        spares = self.spares[stage_index]
        if spares:
            return spares.pop()
        for slot in self.orphans:
            if slot[_STAGE] == stage_index and not slot[0]:
                self.orphans.remove(slot)
                return slot
        if self.cells >= MAX_CELLS or not self._allocate(self.cells + 1):
            return None
        slot = _slot(self, self.cell(self.cells, stage_index), stage_index, name)
        self.cells += 1
        self.words[_CELLS] = self.cells
        self.slots.append(slot)
        return slot

    def _allocate(self, cells: int) -> bool:
        needed = CELLS_AT + cells * CELL_WORDS * 8
        while self._allocated < needed:
            if not self._is_mine(self._fd):  # the program closed or reused the descriptor
                return False
            try:
                os.posix_fallocate(self._fd, self._allocated, STEP_BYTES)
            except OSError:
                return False
            self._allocated += STEP_BYTES
        return True

    def abandon(self) -> None:
        """In a forked child: let go of the parent's memory without writing to it."""
        scratch = memoryview(bytearray(8 * CELL_WORDS)).cast(_WORD)
        for slot in self.slots:
            slot[_DETACH](scratch)
        if self._is_mine(self._fd):
            self.words.release()
            self._view.release()
            try:
                self._map.close()
                _mappings.remove(self._map)
            except BufferError:  # a thread that the child does not have was in the middle
                pass


def _memfd() -> int:
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        return os.memfd_create(MEMFD_NAME, flags | 8)  # MFD_NOEXEC_SEAL, Linux 6.3
    except OSError:
        return os.memfd_create(MEMFD_NAME, flags)


def _seal(fd: int) -> None:
    import fcntl

    add_seals = getattr(fcntl, "F_ADD_SEALS", 1033)
    fcntl.fcntl(fd, add_seals, 1 | 2 | 4)  # F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW


def _start_ticks() -> int:
    try:
        fd = os.open("/proc/self/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            stat = os.read(fd, 4096)
        finally:
            os.close(fd)
        return int(stat[stat.rindex(b")") + 2 :].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


class _Threadwide(object):
    """What a thread keeps: its slots by stage name, its frame, passes of kept objects."""

    __slots__ = ("frame", "kept", "region", "slots", "thread")

    def __init__(self, region: _Region | None, slots: dict[str, Slot]) -> None:
        self.region = region
        self.slots = slots
        self.frame: Frame = [0, 0, 0, None, False]
        self.kept: list[tuple[Slot, Span]] = []
        self.thread = get_native_id()

    def __del__(self) -> None:
        try:
            if self.region is None:
                return
            for slot in {id(slot): slot for slot in self.slots.values()}.values():
                if slot[0]:  # entered here, to be left by another thread
                    self.region.orphans.append(slot)
                else:
                    self.region.spares[slot[_STAGE]].append(slot)
        except Exception:  # the interpreter is going down
            pass


class _OffSlots(dict):  # type: ignore[type-arg]
    def __missing__(self, name: str) -> Slot:
        if callable(name):
            raise KeyError(name)  # @stage without a name
        return _OFF_SLOT


class _Dead(object):
    """Replaces the thread-local state when the probe turns itself off."""

    slots: dict[str, Slot] = _OffSlots()
    state = _Threadwide(None, {})


_lock = RLock()  # re-entrant: a destructor or signal handler may call stage() while it is held
_mappings: list[mmap] = []
"""Held by the fork hook, so that they outlive the modules: a mapping closes its descriptor at its
end, and a program that closed all descriptors may have a file of its own under that number."""
_modules = sys.modules
_local_state: Any = _local()
_context_frame = _frame_of_context.get
_set_context_frame = _frame_of_context.set
_contexts = False
"""True once a context has a frame."""
_tasks: Any = None
"""Empty while no thread runs a task; None until asyncio is there, see `_learn_of_asyncio`."""
_running_loop: Any = None
_region: _Region | None = None
_generation = 0
_errors = 0
_off_reason = "BOTTLETOP_PROBE=0" if os.environ.get("BOTTLETOP_PROBE") == "0" else ""


def status() -> str:
    """Return "on", "idle" before the first stage, or "off: " and the reason."""
    if _off_reason:
        return "off: " + _off_reason
    return "on" if _region is not None else "idle"


def stage(name: str) -> Span:
    """Return a context manager and decorator that times passes of the stage `name`."""
    try:
        slot: Slot = _local_state.slots[name]
        if not slot[0]:
            slot[0] = None
            return slot[1]  # type: ignore[no-any-return]
        spare: Slot = _region.spares[slot[_STAGE]].pop()  # type: ignore[union-attr]
        spare[_TAKE](_local_state.state, _SPARE)
        spare[0] = None
        return spare[1]  # type: ignore[no-any-return]
    except (AttributeError, KeyError, TypeError, IndexError):
        pass
    return _first_or_overlapping(name)


def _first_or_overlapping(name: Any) -> Span:
    """`stage()` for a name that is new to the thread, or all whose slots are in use by passes."""
    try:
        if callable(name):  # @stage without a name
            of_func = _first_or_overlapping(getattr(name, "__name__", "(unnamed)"))
            return of_func(name)  # type: ignore[no-any-return]
        if type(name) is not str:
            name = str(name)
        with _lock:
            return _OFF if _off_reason else _obtain(name)
    except RecursionError:
        raise  # as in `enter`
    except Exception as error:
        _failed(error)
        return _OFF


def _obtain(name: str) -> Span:
    global _region
    if _region is None:
        try:
            _region = _Region(_generation)
        except (OSError, AttributeError, ImportError, ValueError) as error:
            _turn_off("no shared memory: %s" % error)
            return _OFF
    state = getattr(_local_state, "state", None)
    if state is None:
        slots: dict[str, Slot] = {}
        state = _local_state.state = _Threadwide(_region, slots)
        _local_state.slots = slots
    home = state.slots.get(name)
    if home is not None and not home[0]:
        slot = home
    else:
        index = _region.stage_index(name)
        slot = _region.slot(index, name)
        if slot is None:
            return _Shared(_region, index, name)
        is_home = home is None and len(state.slots) < MAX_CACHED_NAMES
        slot[_TAKE](state, 0 if is_home else _SPARE)
        if is_home:
            state.slots[name] = slot
    slot[0] = None
    return slot[_SPAN]  # type: ignore[no-any-return]


def _learn_of_asyncio() -> None:
    """Find out how to see whether a task runs. While asyncio is being imported none does.

    Whatever runs coroutines as asyncio does must keep `asyncio.tasks._current_tasks` (see
    "Extending" in its documentation), so that while that is empty no thread need be asked for its
    loop. From 3.14 on the current tasks are kept elsewhere, and to ask is cheap.
    """
    global _tasks, _running_loop
    running_loop = getattr(_modules["asyncio"], "_get_running_loop", None)
    tasks = getattr(_modules.get("asyncio.tasks"), "_current_tasks", None)
    if running_loop is not None and tasks is not None:
        _running_loop = running_loop
        _tasks = tasks if sys.version_info < (3, 14) else True


def _only_word(words: memoryview, index: int) -> memoryview:
    """One word as a view without dimensions, whose item costs least to store."""
    return words[index : index + 1].cast("B").cast(_WORD, shape=[])


def _slot(region: _Region, words: memoryview, stage_index: int, name: str) -> Slot:
    """Make the writer of one cell: closures, since cell variables are the cheapest state there is.

    `enter` and `leave` are the hot path. Each variable of this function that they use costs a call
    a few nanoseconds, so what is rare is elsewhere.
    """
    counts = [0] * BUCKETS
    sums = [0] * BUCKETS
    count_words = words[_COUNTS:_SUMS]
    sum_words = words[_SUMS:]
    start_word = _only_word(words, _START)
    nested = longest = saved = special = 0
    frame: Frame = []
    own_frame: Frame = []
    clock = monotonic_ns

    def enter() -> None:
        nonlocal saved, special, own_frame
        global _contexts
        try:
            if slot[0] is not None:
                return enter_kept()
            outer = _context_frame() if _contexts else None
            if outer is not None or (
                "asyncio" in _modules if _tasks is None else _tasks and _running_loop() is not None
            ):
                if _tasks is None:
                    return enter_at_first()
                # Tasks of one thread interleave: what is nested in what, their contexts know.
                while outer is not None and outer[_DONE]:
                    outer = outer[_OUTER]
                if outer is None:
                    outer = frame
                own_frame = [0, 0, 0, outer, False]
                special |= _IN_CONTEXT
                if not _contexts:
                    _contexts = True
                _set_context_frame(own_frame)
                slot[0] = start = clock()
                start_word[()] = start
                if outer[_ACTIVE]:
                    outer[_ACTIVE] += 1
                else:
                    outer[_ACTIVE] = 1
                    outer[_SINCE] = start
                return
            saved = frame[0]
            frame[0] = 0
            slot[0] = start = clock()
            start_word[()] = start
        except RecursionError:
            raise  # the program is at its own limit; to go on would abort Python 3.8
        except Exception as error:
            skip(error)

    def leave(_0: object, _1: object, _2: object) -> None:
        nonlocal nested, longest
        try:
            spent = clock() - slot[0]
            if special:
                inside = leave_specially(spent)
                if inside is None:
                    return
            else:
                inside = frame[0]
                frame[0] = saved + spent
            start_word[()] = 0
            bucket = (spent * spent).bit_length()
            if bucket > 79:
                bucket = 79
            counts[bucket] = passes = counts[bucket] + 1
            count_words[bucket] = passes
            sums[bucket] = total = sums[bucket] + spent
            sum_words[bucket] = total
            if inside:
                nested += inside if inside < spent else spent
                words[3] = nested
            if spent > longest:
                longest = spent
                words[4] = spent
            slot[0] = 0
            if special:
                give_back()
        except Exception as error:
            give_up(error)

    def enter_at_first() -> None:
        nonlocal saved
        _learn_of_asyncio()
        if _tasks is not None:
            return enter()
        saved = frame[0]
        frame[0] = 0
        slot[0] = start_word[()] = clock()

    def leave_specially(spent: int) -> int | None:
        """Return the ns spent in nested stages, or None when this was another slot's pass.

        In a context, stages nested at the same time count once: the time that any was under way.
        A frame stays in its context when it is done; the next one passes it over.
        """
        nonlocal special
        if special & _KEPT and leave_kept():
            return None
        if special & _SKIPPED or not slot[0]:  # this pass was never entered here
            special &= ~_SKIPPED
            return None
        if not special & _IN_CONTEXT:
            inside: int = frame[0]
            frame[0] = saved + spent
            return inside
        special &= ~_IN_CONTEXT
        end = slot[0] + spent
        done = own_frame
        done[_DONE] = True
        inside = done[_IN_NESTED]
        if done[_ACTIVE]:
            inside += end - done[_SINCE]
        outer = done[_OUTER]
        if outer[_ACTIVE] > 1:
            outer[_ACTIVE] -= 1
        else:
            outer[_ACTIVE] = 0
            outer[_IN_NESTED] += end - outer[_SINCE]
        while outer[_DONE]:  # the outermost is a thread's own frame, which is never done
            outer = outer[_OUTER]
        done[_OUTER] = outer  # so that chains of frames left out of order do not grow
        return inside

    def enter_kept() -> None:
        """A kept object entered again, or by another thread: a slot of its own for that pass."""
        nonlocal special
        other = stage(name)
        other.__enter__()
        special |= _KEPT
        _local_state.state.kept.append((slot, other))

    def leave_kept() -> bool:
        state = getattr(_local_state, "state", None)
        passes: list[tuple[Slot, Span]] = state.kept if state is not None else []
        for index in range(len(passes) - 1, -1, -1):
            if passes[index][0] is slot:
                passes.pop(index)[1].__exit__(None, None, None)
                return True
        return False

    def skip(error: Exception) -> None:
        """An error while entering: this pass will not count."""
        nonlocal special
        special |= _SKIPPED
        slot[0] = 0
        _failed(error)

    def give_up(error: Exception) -> None:
        """An error while leaving. That a pass was never entered is none of ours."""
        entered = slot[0] is not None
        words[_START] = slot[0] = 0
        if entered:
            _failed(error)

    def give_back() -> None:
        if special & _SPARE:
            region.spares[stage_index].append(slot)

    def take(state: _Threadwide, as_spare: int) -> None:
        nonlocal frame, special
        frame = state.frame
        special = special & _KEPT | as_spare
        words[_THREAD] = state.thread

    def detach(scratch: memoryview) -> None:
        nonlocal words, count_words, sum_words, start_word
        for view in (start_word, sum_words, count_words, words):
            view.release()
        words, count_words, sum_words = scratch, scratch, scratch
        start_word = _only_word(scratch, _START)

    class Pass(Span):
        __slots__ = ()
        __enter__ = staticmethod(enter)
        __exit__ = staticmethod(leave)

        def __call__(self, func: F) -> F:
            if slot[0] is None:
                slot[0] = 0
                give_back()
            return _decorated(func, name)  # type: ignore[no-any-return]

    slot: Slot = [0, Pass(), stage_index, take, detach]
    return slot


class _Shared(Span):
    """Passes in the shared cell of a stage, under the lock: slower, and not seen as nested."""

    __slots__ = ("_index", "_name", "_region", "_starts")

    def __init__(self, region: _Region, index: int, name: str) -> None:
        self._region = region
        self._index = index
        self._name = name
        self._starts: list[int] = []

    def __enter__(self) -> None:
        try:
            with _lock:
                if self._region is not _region:  # made before a fork
                    return
                _region.words[_FLAGS] |= _FLAG_SHARED
                words = _region.cell(self._index, self._index)
                start = monotonic_ns()
                self._starts.append(start)
                words[_START] = (words[_START] + start) & 0xFFFFFFFFFFFFFFFF
                words[_UNDER_WAY] += 1
        except RecursionError:
            raise  # as in `enter`
        except Exception as error:
            _failed(error)

    def __exit__(self, kind: object, value: object, trace: object) -> None:
        try:
            with _lock:
                if not self._starts or self._region is not _region:
                    return
                start = self._starts.pop()
                spent = monotonic_ns() - start
                words = _region.cell(self._index, self._index)
                words[_START] = (words[_START] - start) & 0xFFFFFFFFFFFFFFFF
                words[_UNDER_WAY] -= 1
                bucket = min((spent * spent).bit_length(), BUCKETS - 1)
                words[_COUNTS + bucket] += 1
                words[_SUMS + bucket] += spent
                words[_LONGEST] = max(words[_LONGEST], spent)
        except Exception as error:
            _failed(error)

    def __call__(self, func: F) -> F:
        return _decorated(func, self._name)  # type: ignore[no-any-return]


def _failed(error: BaseException) -> None:
    """Count an error of our own; the third one turns the probe off for good.

    A program at its recursion or memory limit is not our error: that pass is not counted, no more.
    """
    global _errors
    if isinstance(error, (RecursionError, MemoryError)):
        return
    try:
        with _lock:
            _errors += 1
            if _region is not None:
                _region.words[_ERRORS] = _errors
            if _errors >= MAX_ERRORS and not _off_reason:
                _turn_off("%d errors, the last: %r" % (_errors, error))
                if _region is not None:
                    _region.words[_STATE] = _OFF_BY_ERRORS
    except Exception:
        pass


def _turn_off(reason: str) -> None:
    global _off_reason, _local_state
    _off_reason = reason
    _local_state = _Dead()


def _decorated(func: Any, name: str) -> Any:
    """Wrap `func` so that each call is a pass of stage `name`; classes pass through unchanged."""
    if isinstance(func, (staticmethod, classmethod)):
        return type(func)(_decorated(func.__func__, name))
    if isinstance(func, type) or not callable(func):
        return func
    flags = getattr(getattr(func, "__code__", None), "co_flags", 0)
    if flags & 0x200:
        wrapper = _async_generator(func, name)
    elif flags & 0x80:
        wrapper = _coroutine(func, name)
    elif flags & 0x20:
        wrapper = _generator(func, name)
    else:
        wrapper = _function(func, name)
    return _named_like(func, wrapper)


def _named_like(func: Any, wrapper: Any) -> Any:
    """What functools.wraps does, without importing it; annotations stay unevaluated on 3.14."""
    annotations = "__annotate__" if hasattr(func, "__annotate__") else "__annotations__"
    names = ("__module__", "__name__", "__qualname__", "__doc__", "__type_params__", annotations)
    for attribute in names:
        try:
            setattr(wrapper, attribute, getattr(func, attribute))
        except (AttributeError, TypeError):
            pass
    wrapper.__dict__.update(getattr(func, "__dict__", {}))
    wrapper.__wrapped__ = func
    return wrapper


def _function(func: Callable[..., Any], name: str) -> Any:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with stage(name):
            return func(*args, **kwargs)

    return wrapper


def _coroutine(func: Callable[..., Any], name: str) -> Any:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        with stage(name):
            return await func(*args, **kwargs)

    return wrapper


def _generator(func: Callable[..., Any], name: str) -> Any:
    """Each resumption up to the next item is a pass: the consumer's time is not the stage's."""

    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        inner = func(*args, **kwargs)
        resume: Any = inner.send
        value: Any = None
        while True:
            try:
                with stage(name):
                    item = resume(value)
            except StopIteration as stop:
                return stop.value
            value = None
            try:
                value = yield item
                resume = inner.send
            except GeneratorExit:
                inner.close()
                raise
            except BaseException as error:
                resume, value = inner.throw, error

    return wrapper


def _async_generator(func: Callable[..., Any], name: str) -> Any:
    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        inner = func(*args, **kwargs)
        resume: Any = inner.asend
        value: Any = None
        while True:
            try:
                with stage(name):
                    item = await resume(value)
            except StopAsyncIteration:
                return
            value = None
            try:
                value = yield item
                resume = inner.asend
            except GeneratorExit:
                await inner.aclose()
                raise
            except BaseException as error:
                resume, value = inner.athrow, error

    return wrapper


def _in_child(mappings: list[mmap] = _mappings) -> None:
    """After fork the mapping is the parent's: the child makes its own at its first stage."""
    global _lock, _local_state, _region, _generation
    try:
        _lock = RLock()
        _generation += 1
        region, _region = _region, None
        if not _off_reason:
            _local_state = _local()
        if region is not None:
            region.abandon()
    except Exception as error:
        _failed(error)


if _off_reason:

    def stage(name: str) -> Span:  # noqa: F811 - the same name, for half the cost
        """Return a context manager and decorator that does nothing: the probe is off."""
        return _OFF if name.__class__ is str else _first_or_overlapping(name)

else:
    os.register_at_fork(after_in_child=_in_child)
