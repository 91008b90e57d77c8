"""The command line: what it accepts and how it explains itself."""

from __future__ import annotations

import argparse
import re
from typing import TypeAlias

from bottletop import __version__

EPILOG = """\
exit codes:
  report, record   0 nothing at warn or above   1 findings at warn or above
  demo             0 the scenario's verdict was reached   1 it was not
  run --no-tui     the exit code of the command
  all              2 wrong usage   3 cannot watch

`bottletop COMMAND --help` explains each command.
"""

EXAMPLES = {
    "attach": "bottletop attach 4242\n  bottletop attach vllm",
    "run": "bottletop run -- python serve.py --port 8000\n"
    "  bottletop run --no-tui -- python batch.py",
    "demo": "bottletop demo cpu-starved\n  bottletop demo throttled --for 30s --json",
    "record": "bottletop record --pid 4242 --for 10m -o slow.btrec",
    "replay": "bottletop replay slow.btrec",
    "report": "bottletop report --pid 4242 --for 30s\n  bottletop report slow.btrec --json\n"
    "  bottletop report --from gpu.csv smi-q.txt",
    "rules": "bottletop rules\n  bottletop rules gpu-starved-cpu",
}

_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")


def duration(text: str) -> float:
    """`30s`, `5m`, `1h30m` or plain seconds, as seconds above zero. Raises ArgumentTypeError."""
    match = _DURATION.fullmatch(text.strip().lower())
    if not match or not any(match.groups()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 30s, 5m or 1h30m")
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    total = hours * 3600 + minutes * 60 + seconds
    if not 0 < total <= 30 * 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is not above zero and at most 30 days")
    return total


def process_id(text: str) -> int:
    """A process id. Raises ArgumentTypeError."""
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a process id")
    return int(text[:20])


def parser() -> argparse.ArgumentParser:
    """Build the parser of all commands."""
    top = argparse.ArgumentParser(
        prog="bottletop",
        description="Says why inference on this GPU host is slow. No command: the live host.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _screen(top, "auto")
    _root(top, None)
    _ways(top, allowed=True, token_file=None)
    top.add_argument("--version", action="version", version=f"bottletop {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    _attach(commands)
    _run(commands)
    _demo(commands)
    _record(commands)
    _replay(commands)
    _report(commands)
    _rules(commands)
    return top


_Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def _command(commands: _Commands, name: str, title: str, about: str) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=title,
        description=about,
        epilog=f"examples:\n  {EXAMPLES[name]}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _attach(commands: _Commands) -> None:
    command = _command(
        commands,
        "attach",
        "watch a running process and its tree",
        "Opens the dashboard on a running process: its whole tree, stages, GPUs and disks.\n"
        "The process is only read, never paused, signalled or changed.",
    )
    command.add_argument("process", metavar="PID|NAME", help="process id, or part of its name")
    _follow(command)
    _screen(command)
    _root(command)
    _ways(command)


def _run(commands: _Commands) -> None:
    command = _command(
        commands,
        "run",
        "start a command with the probe loaded and watch it",
        "Starts CMD with the stage probe importable and attaches to it. Its output goes to a log\n"
        "file that the dashboard can show. Quitting detaches: the command keeps running.",
    )
    command.add_argument(
        "--no-tui",
        action="store_true",
        help="print the report at its end and pass its exit code on",
    )
    command.add_argument("--json", action="store_true", help="with --no-tui: report as JSON")
    command.add_argument(
        "--log", metavar="FILE", help="where its output goes (default: named here)"
    )
    _screen(command)
    _ways(command)
    command.add_argument("cmd", metavar="CMD", nargs=argparse.REMAINDER, help="after --")


def _demo(commands: _Commands) -> None:
    command = _command(
        commands,
        "demo",
        "a real slow process and a simulated GPU, to see what it does",
        "Starts a real child process that is slow in a known way, attaches to it and judges.\n"
        "The GPU is simulated, follows the child's real `forward` stage, and is marked so\n"
        "everywhere. Without a terminal the report is printed.",
    )
    command.add_argument("scenario", nargs="?", default="cpu-starved", help="see --list")
    command.add_argument("--list", action="store_true", help="list the scenarios")
    _for(command, default=None, note="default: until the verdict or 30s; on a terminal until q")
    _json(command)
    _screen(command)
    command.add_argument(
        "--real-gpu",
        action="store_true",
        help="use a real GPU through torch where the scenario can be had on it",
    )


def _record(commands: _Commands) -> None:
    command = _command(
        commands,
        "record",
        "record to a file, without a screen",
        "Records until --for is over, the target ends, or SIGTERM or Ctrl-C; a dropped SSH line\n"
        "does not end it. The file survives kill -9 with at most one sample lost.",
    )
    _pid(command)
    _follow(command)
    _ways(command)
    _for(command, default=None, note="default: until stopped")
    _json(command)
    command.add_argument("-o", "--output", metavar="FILE.btrec", required=True)


def _replay(commands: _Commands) -> None:
    command = _command(
        commands,
        "replay",
        "look at a recording on the same screens",
        "Opens a recording: play, pause, step, seek. Findings are shown as they were recorded.",
    )
    command.add_argument("file", metavar="FILE")
    _screen(command)


def _report(commands: _Commands) -> None:
    command = _command(
        commands,
        "report",
        "watch for a while, or judge a recording or logs, and print why it is slow",
        "Watches the host or a process and prints the verdict with its evidence; with a FILE,\n"
        "judges that recording again with the thresholds it was recorded under; with --from,\n"
        "judges logs of other tools: nvidia-smi queries, dmon, pmon, -q, its table, CSV series.",
    )
    command.add_argument("file", metavar="FILE.btrec", nargs="?")
    _logs(command)
    _pid(command)
    _follow(command)
    _ways(command)
    _for(command, default=30.0, note="default: 30s")
    _json(command)
    _root(command)


def _logs(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--from",
        dest="logs",
        metavar="PATH",
        nargs="+",
        help="judge these logs of other tools; each is known by its content",
    )
    command.add_argument(
        "--columns",
        metavar="NAME,...",
        default="",
        help="query names of the columns of a CSV that was written with noheader",
    )
    command.add_argument(
        "--every",
        dest="every_s",
        metavar="TIME",
        type=duration,
        help="distance of the readings in logs without time stamps (default: the tool's own)",
    )


def _rules(commands: _Commands) -> None:
    command = _command(
        commands,
        "rules",
        "list the rules, or explain one",
        "Lists every rule, or prints one rule's documentation and thresholds.",
    )
    command.add_argument("code", nargs="?", metavar="CODE")


def _screen(command: argparse.ArgumentParser, default: str = argparse.SUPPRESS) -> None:
    """Look of the screens. Only the top parser has defaults: a command's would overwrite them."""
    command.add_argument(
        "--theme",
        choices=("auto", "dark", "light", "ansi"),
        default=default,
        help="colours of the screen; ansi uses the terminal's own (default: auto)",
    )
    command.add_argument(
        "--glyphs",
        choices=("auto", "braille", "blocks", "ascii"),
        default=default,
        help="characters that histories are drawn with (default: what the terminal can show)",
    )


def _root(command: argparse.ArgumentParser, default: str | None = argparse.SUPPRESS) -> None:
    command.add_argument(
        "--root",
        metavar="DIR",
        default=default,
        help="read a captured host tree (DIR/proc, DIR/sys) instead of this host",
    )


def _follow(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--follow",
        action="store_true",
        help="when it ends, attach to what is started under its name",
    )


def _ways(
    command: argparse.ArgumentParser,
    *,
    allowed: bool | str = argparse.SUPPRESS,
    token_file: str | None = argparse.SUPPRESS,
) -> None:
    command.add_argument(
        "--no-scrape",
        dest="scrape",
        action="store_false",
        default=allowed,
        help="do not ask the process's own HTTP ports for their metrics",
    )
    command.add_argument(
        "--no-sampler",
        dest="sampler",
        action="store_false",
        default=allowed,
        help="do not read the stacks of Python processes that carry no probe",
    )
    command.add_argument(
        "--metrics-token-file",
        metavar="FILE",
        default=token_file,
        help="file with the bearer token that its metric page asks for",
    )


def _pid(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--pid", metavar="P", type=process_id, help="process to attach to (default: the host alone)"
    )


def _for(command: argparse.ArgumentParser, *, default: float | None, note: str) -> None:
    command.add_argument(
        "--for",
        dest="for_s",
        metavar="TIME",
        type=duration,
        default=default,
        help=f"how long to watch, such as 30s, 5m, 1h30m ({note})",
    )


def _json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print one JSON object (schema 1)")
