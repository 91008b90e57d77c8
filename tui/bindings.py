"""All keys in one place: each with an id to remap it by, a tooltip, and the mode it belongs to."""

from __future__ import annotations

from textual.binding import Binding

from bottletop.tui.widgets.keys import Hint

LIVE, REPLAY = "live", "replay"


def key(
    keys: str,
    action: str,
    label: str,
    tooltip: str,
    *,
    id: str,  # noqa: A002 - Textual's word for it
    priority: bool = False,
) -> Binding:
    """A binding as all of ours are."""
    return Binding(keys, action, label, tooltip=tooltip, id=id, show=False, priority=priority)


APP: tuple[Binding, ...] = (
    key("q", "quit", "Quit", "Leave. What is watched goes on undisturbed.", id="app.quit"),
    key("ctrl+z", "suspend", "Suspend", "Stop, back to the shell; fg returns.", id="app.stop"),
    key("ctrl+c", "quit", "Quit", "Leave.", id="app.interrupt", priority=True),
    key("question_mark,h", "help", "Help", "Keys, signs and words.", id="app.help"),
    key("p", "pause", "Pause", "Freeze the picture; sampling goes on.", id="app.pause"),
    key("R", "record", "Record", "Start or stop recording to a file.", id="app.record"),
    key("a", "attach", "Attach", "Pick a process to watch.", id="app.attach"),
    key("l", "log", "Output", "Show or hide the command's output.", id="app.log"),
    key("t", "theme", "Theme", "Dark, light, or the terminal's own colours.", id="app.theme"),
    key("space", "space", "Play", "Play or pause.", id="replay.play"),
    key("right", "seek(10)", "+10 s", "Forward 10 s.", id="replay.forward"),
    key("left", "seek(-10)", "-10 s", "Back 10 s.", id="replay.back"),
    key("shift+right", "seek(60)", "+60 s", "Forward 60 s.", id="replay.forward-minute"),
    key("shift+left", "seek(-60)", "-60 s", "Back 60 s.", id="replay.back-minute"),
    key("right_square_bracket", "step(1)", "Step", "One evaluation on.", id="replay.step"),
    key("left_square_bracket", "step(-1)", "Step", "One evaluation back.", id="replay.step-back"),
    key("n", "finding(1)", "Next", "To the next finding.", id="replay.next"),
    key("N", "finding(-1)", "Previous", "To the finding before.", id="replay.previous"),
    key("g", "goto", "Go to", "Go to a time of the recording.", id="replay.goto"),
    key("plus,equals_sign", "speed(2)", "Faster", "Twice as fast.", id="replay.faster"),
    key("minus", "speed(0.5)", "Slower", "Half as fast.", id="replay.slower"),
    key("home", "ends(0)", "Start", "To the start of the recording.", id="replay.start"),
    key("end", "ends(1)", "End", "To the end of the recording.", id="replay.end"),
)

REPLAY_ACTIONS = frozenset({"seek", "step", "finding", "goto", "speed", "ends"})
LIVE_ACTIONS = frozenset({"pause", "record", "attach", "log"})

NEXT_GPU = key("i", "other_gpu(1)", "Next", "The next GPU.", id="gpu.next")
PREVIOUS_GPU = key("I", "other_gpu(-1)", "Previous", "The GPU before.", id="gpu.previous")
ZOOM = key("z", "zoom", "Zoom", "Length of the histories: 60 s, 30 s, 5 min, 1 h.", id="zoom")

OVERVIEW: tuple[Binding, ...] = (
    key("up,k", "cursor(-1)", "Up", "Select the finding above.", id="findings.up"),
    key("down,j", "cursor(1)", "Down", "Select the finding below.", id="findings.down"),
    key("enter", "explain", "Explain", "Explain the selected finding.", id="findings.explain"),
    key("i", "gpu", "GPU", "All that is known of one GPU.", id="gpu.open"),
    key("1", "solo('gpus')", "GPUs", "GPUs alone.", id="panel.gpus"),
    key("2", "solo('stages')", "Stages", "Stages alone.", id="panel.stages"),
    key("3", "solo('cores')", "Cores", "Cores alone.", id="panel.cores"),
    key("4", "solo('disks')", "Disks", "Disks alone.", id="panel.disks"),
    key("5", "solo('threads')", "Threads", "Threads of the target alone.", id="panel.threads"),
    key("6", "solo('findings')", "Findings", "Findings alone.", id="panel.findings"),
    key("escape,0", "solo('')", "Overview", "Back to the overview.", id="panel.overview"),
    ZOOM,
)

BACK = key("escape,enter", "dismiss", "Back", "Back to the overview.", id="screen.back")

SCROLL: tuple[Binding, ...] = (
    key("up,k", "scroll(-1)", "Up", "One line up.", id="scroll.up"),
    key("down,j", "scroll(1)", "Down", "One line down.", id="scroll.down"),
    key("pageup,b", "page(-1)", "Page up", "One page up.", id="scroll.page-up"),
    key("pagedown,f", "page(1)", "Page down", "One page down.", id="scroll.page-down"),
)

LIVE_HINTS = (
    Hint("Enter", "explain", "screen.explain", 0),
    Hint("a", "attach", "app.attach", 2),
    Hint("p", "pause", "app.pause", 3),
    Hint("R", "record", "app.record", 2),
    Hint("i", "GPU", "screen.gpu", 5),
    Hint("1-6", "panels", "screen.solo('gpus')", 4),
    Hint("z", "zoom", "screen.zoom", 6),
    Hint("l", "output", "app.log", 5),
    Hint("?", "help", "app.help", 1),
    Hint("q", "quit", "app.quit", 0),
)

REPLAY_HINTS = (
    Hint("Enter", "explain", "screen.explain", 0),
    Hint("Space", "play", "app.space", 1),
    Hint("[ ]", "step", "app.step(1)", 3),
    Hint("← →", "10 s", "app.seek(10)", 2),
    Hint("n N", "finding", "app.finding(1)", 2),
    Hint("g", "go to", "app.goto", 4),
    Hint("+ -", "speed", "app.speed(2)", 5),
    Hint("1-6", "panels", "screen.solo('gpus')", 6),
    Hint("?", "help", "app.help", 1),
    Hint("q", "quit", "app.quit", 0),
)

DETAIL_HINTS = (
    Hint("Esc", "back", "screen.dismiss", 0),
    Hint("↑ ↓", "scroll", "screen.scroll(1)", 1),
    Hint("z", "zoom", "screen.zoom", 3),
    Hint("?", "help", "app.help", 2),
    Hint("q", "quit", "app.quit", 0),
)
GPU_HINTS = (
    Hint("Esc", "back", "screen.dismiss", 0),
    Hint("↑ ↓", "scroll", "screen.scroll(1)", 1),
    Hint("i I", "other GPU", "screen.other_gpu(1)", 1),
    Hint("z", "zoom", "screen.zoom", 3),
    Hint("?", "help", "app.help", 2),
    Hint("q", "quit", "app.quit", 0),
)
PAGE_HINTS = tuple(hint for hint in DETAIL_HINTS if hint.key not in ("z", "?"))


def hints(mode: str, *, log: bool, solo: bool) -> tuple[Hint, ...]:
    """The keys to name under the overview."""
    chosen = REPLAY_HINTS if mode == REPLAY else LIVE_HINTS
    kept = tuple(hint for hint in chosen if hint.action != "app.log" or log)
    return (Hint("Esc", "overview", "screen.solo('')", 0), *kept) if solo else kept
