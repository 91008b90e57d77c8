"""The `bottletop` command. Imports only what the chosen command needs, so that it starts fast.

What a person may get wrong ends in one line on stderr and exit code 2 or 3, never a traceback.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

from bottletop.arguments import parser

if TYPE_CHECKING:
    import argparse
    import threading
    from collections.abc import Callable, Sequence
    from typing import Unpack

    from bottletop.collectors.base import Ways
    from bottletop.demo.run import RunningDemo
    from bottletop.live import LiveRun
    from bottletop.model import ProcessId
    from bottletop.runtime import Runtime
    from bottletop.snapshot import Watch

USAGE = 2
CANNOT_WATCH = 3


class Refusal(Exception):
    """A command cannot be carried out; carries the line to print and the exit code."""

    def __init__(self, message: str, code: int = USAGE) -> None:
        super().__init__(message)
        self.code = code


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    arguments = parser().parse_args(argv)
    commands: dict[str | None, Callable[[argparse.Namespace], int]] = {
        None: _host,
        "attach": _attach,
        "run": _run,
        "demo": _demo,
        "record": _record,
        "replay": _replay,
        "report": _report,
        "rules": _rules,
    }
    try:
        return commands[arguments.command](arguments)
    except Refusal as refusal:
        return _complain(str(refusal), refusal.code)
    except BrokenPipeError:
        # The reader of our output went away (`| head`): not an error.
        _drop_output()
        return 0
    except KeyboardInterrupt:
        return 130


def _complain(line: str, code: int) -> int:
    sys.stderr.write(f"bottletop: {line}\n")
    return code


def _say(text: str) -> None:
    """Write to standard output. Raises `Refusal` where that cannot take it."""
    if sys.stdout is None:
        raise Refusal("standard output is closed", CANNOT_WATCH)
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _drop_output()
        raise Refusal(f"standard output: {error.strerror}", CANNOT_WATCH) from None


def _is_seen() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def _drop_output() -> None:
    """Let what is still buffered go nowhere: it would fail once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# -- screens -----------------------------------------------------------------------------------


def _host(arguments: argparse.Namespace) -> int:
    _require_tree(arguments.root)
    return _dashboard(None, arguments)


def _attach(arguments: argparse.Namespace) -> int:
    _require_tree(arguments.root)
    root = _one_process(arguments.process, arguments.root)
    named = not arguments.process.isdecimal()
    follow = _follow(arguments, root, arguments.process if named else "")
    return _dashboard(root, arguments, follow)


def _dashboard(root: ProcessId | None, arguments: argparse.Namespace, follow: str = "") -> int:
    _require_terminal("use `bottletop report` for text")
    ways = _ways(arguments)
    run = _runtime(root_process=root, root_dir=arguments.root, ways=ways, follow=follow)
    return _show(run, arguments)


def _show(
    runtime: Runtime,
    arguments: argparse.Namespace,
    *,
    log_path: str | None = None,
    for_s: float | None = None,
) -> int:
    """Run the dashboard over a live run, and end the run with it."""
    from bottletop.tui.app import run_dashboard

    runtime.start()
    try:
        return run_dashboard(
            runtime,
            theme=arguments.theme,
            glyphs=arguments.glyphs,
            log_path=log_path,
            for_s=for_s,
        )
    finally:
        runtime.stop()


def _replay(arguments: argparse.Namespace) -> int:
    recording = _open(arguments.file)
    _require_terminal("use `bottletop report FILE` for text")
    from bottletop.clock import SystemClock
    from bottletop.replay import Replay
    from bottletop.tui.app import run_dashboard

    replay = Replay(recording, SystemClock())
    replay.play(True)  # a still picture of the first moment, before anything was read, says nothing
    return run_dashboard(
        replay,
        mode="replay",
        theme=arguments.theme,
        glyphs=arguments.glyphs,
    )


def _require_terminal(instead: str) -> None:
    from bottletop.lifecycle import no_terminal_reason

    reason = no_terminal_reason()
    if reason:
        raise Refusal(f"{reason}: {instead}")


# -- watching without a screen -------------------------------------------------------------------


def _report(arguments: argparse.Namespace) -> int:
    if arguments.logs is not None:
        return _report_logs(arguments)
    if arguments.file is not None:
        if arguments.pid is not None or arguments.root is not None:
            raise Refusal("a recording has its own process and host: leave --pid and --root out")
        from bottletop.replay import judge_again

        return _print(judge_again(_open(arguments.file)), arguments.json)
    _require_tree(arguments.root)
    root = _process_of(arguments.pid, arguments.root)
    runtime = _runtime(
        root_process=root,
        root_dir=arguments.root,
        ways=_ways(arguments),
        follow=_follow(arguments, root),
    )
    return _print(_watch(runtime, arguments.for_s, quiet=arguments.json), arguments.json)


def _report_logs(arguments: argparse.Namespace) -> int:
    """Judge logs of other tools; a file that cannot be used is named while others can."""
    if arguments.file is not None or arguments.pid is not None or arguments.root is not None:
        raise Refusal("--from judges logs: leave the recording, --pid and --root out")
    from bottletop.config import ConfigError
    from bottletop.imported import judge_files
    from bottletop.importers import NotImportable, Options
    from bottletop.live import limits_from_config

    names = tuple(name.strip() for name in arguments.columns.split(",") if name.strip())
    try:
        limits = limits_from_config()
        watch = judge_files(arguments.logs, Options(names, arguments.every_s), limits)
    except (ConfigError, NotImportable) as error:
        raise Refusal(str(error)) from None
    for file in watch.files:
        if file.refused:
            _complain(file.refused, USAGE)
    return _print(watch, arguments.json)


def _record(arguments: argparse.Namespace) -> int:
    path = arguments.output
    if not path:
        raise Refusal("record to which file? -o FILE.btrec")
    root = _process_of(arguments.pid, None)
    follow = _follow(arguments, root)
    runtime = _runtime(root_process=root, ways=_ways(arguments), follow=follow)
    from bottletop.headless import stop_on_signals

    def stopped() -> bool:
        return runtime.recording is not None and runtime.recording.stopped

    # Before there is a file: a line that drops while it is made must not leave half of one.
    with stop_on_signals(outlive_hangup=True) as stop:
        try:
            runtime.start_recording(path)
        except OSError as error:
            raise Refusal(f"{path}: {error.strerror or error}", CANNOT_WATCH) from None
        watched = _watch_until(stop, runtime, arguments.for_s, quiet=arguments.json, ended=stopped)
    code = _print(watched, arguments.json)
    status = runtime.recording
    if status is not None and status.stopped:
        left = "what was written before can be replayed" if os.path.exists(path) else "no file left"
        raise Refusal(f"{path}: {status.error}; {left}", CANNOT_WATCH)
    if status is not None and status.error:
        sys.stderr.write(f"bottletop: {path}: {status.error}\n")
    if not arguments.json:
        _say(f"\nrecorded {path}; bottletop replay {path}\n")
    return code


def _watch(
    runtime: Runtime,
    for_s: float | None,
    *,
    quiet: bool,
    ended: Callable[[], bool] = lambda: False,
) -> Watch:
    from bottletop.headless import stop_on_signals

    with stop_on_signals(outlive_hangup=False) as stop:
        return _watch_until(stop, runtime, for_s, quiet=quiet, ended=ended)


def _watch_until(
    stop: threading.Event,
    runtime: Runtime,
    for_s: float | None,
    *,
    quiet: bool,
    ended: Callable[[], bool],
) -> Watch:
    from bottletop.headless import CannotWatch, watch

    try:
        return watch(runtime, for_s=for_s, stop=stop, ended=ended, quiet=quiet)
    except CannotWatch as error:
        raise Refusal(str(error), CANNOT_WATCH) from None


def _print(watched: Watch, as_json: bool) -> int:
    from bottletop import report

    if as_json:
        _say(json.dumps(report.document(watched), indent=2, allow_nan=False) + "\n")
    else:
        _say(report.text(watched))
    return report.exit_code(watched.judgement)


def _runtime(**run: Unpack[LiveRun]) -> Runtime:
    from bottletop.config import ConfigError
    from bottletop.live import live_runtime

    try:
        return live_runtime(**run)
    except ConfigError as error:
        raise Refusal(str(error)) from None


def _follow(arguments: argparse.Namespace, root: ProcessId | None, name: str = "") -> str:
    """Name by which a restarted target is found again, empty where that is not asked for."""
    if not arguments.follow:
        return ""
    if root is None:
        raise Refusal("--follow needs a process: --pid P")
    if getattr(arguments, "root", None) is not None:
        raise Refusal("--follow needs a live host: leave --root out")
    if name:
        return name
    from bottletop.attach import NotAttachable, resolve
    from bottletop.roots import Roots

    try:
        return resolve(Roots(), str(root.pid))[0].name
    except NotAttachable as error:
        raise Refusal(str(error), CANNOT_WATCH) from None


def _ways(arguments: argparse.Namespace) -> Ways:
    """Which ways into the target may be taken; the token comes from the file that was named."""
    from bottletop.collectors.base import Ways
    from bottletop.roots import read_bytes

    path = arguments.metrics_token_file
    if path is None:
        return Ways(arguments.scrape, arguments.sampler)
    try:
        raw = read_bytes(path, 64 * 1024).strip()
    except OSError as error:
        raise Refusal(f"{path}: {error.strerror or error}") from None
    token = raw.decode("ascii", "replace")
    if not token or not token.isprintable() or " " in token or "\ufffd" in token:
        raise Refusal(f"{path}: not a file with one token in it")
    return Ways(arguments.scrape, arguments.sampler, token)


# -- processes and files -------------------------------------------------------------------------


def _process_of(pid: int | None, root_dir: str | None) -> ProcessId | None:
    if pid is None:
        return None
    from bottletop.attach import NotAttachable, identify
    from bottletop.roots import Roots

    try:
        return identify(Roots.of(root_dir), pid)
    except NotAttachable as error:
        raise Refusal(str(error), CANNOT_WATCH) from None


def _one_process(query: str, root_dir: str | None) -> ProcessId:
    from bottletop.attach import resolve
    from bottletop.roots import Roots

    if query.isdecimal():
        found = _process_of(int(query), root_dir)
        assert found is not None
        return found
    candidates = resolve(Roots.of(root_dir), query)
    if not candidates:
        raise Refusal(f"no process matches {query!r}", CANNOT_WATCH)
    if len(candidates) == 1:
        return candidates[0].id
    from bottletop.lifecycle import no_terminal_reason

    if no_terminal_reason() is None:
        from bottletop.tui.app import pick_process

        picked = pick_process(candidates)
        if picked is None:
            raise Refusal("no process picked")
        return picked
    lines = "\n".join(f"  {item.id.pid:>8}  {item.command}" for item in candidates)
    raise Refusal(f"{len(candidates)} processes match {query!r}; name one by its pid:\n{lines}")


def _require_tree(root_dir: str | None) -> None:
    if root_dir is not None and not os.path.isdir(os.path.join(root_dir, "proc")):
        raise Refusal(f"{root_dir}: not a captured host tree: it has no proc folder")


def _open(path: str):  # type: ignore[no-untyped-def]
    from bottletop.session.reader import NotReadable, open_recording

    try:
        return open_recording(path)
    except NotReadable as error:
        raise Refusal(str(error)) from None


# -- run -----------------------------------------------------------------------------------------


def _run(arguments: argparse.Namespace) -> int:
    command = arguments.cmd[1:] if arguments.cmd[:1] == ["--"] else arguments.cmd
    if not command:
        raise Refusal("run what? bottletop run -- CMD ...")
    if arguments.json and not arguments.no_tui:
        raise Refusal("--json needs --no-tui")
    if not arguments.no_tui:
        _require_terminal("use `bottletop run --no-tui`")
    from bottletop.launch import CannotLaunch, launch

    ways = _ways(arguments)
    try:
        launched = launch(command, log_path=arguments.log)
    except CannotLaunch as error:
        raise Refusal(str(error), CANNOT_WATCH) from None
    runtime = _runtime(root_process=_child(launched.pid), ways=ways)
    sys.stderr.write(f"bottletop: output of pid {launched.pid} goes to {launched.log_path}\n")
    if not arguments.no_tui:
        code = _show(runtime, arguments, log_path=str(launched.log_path))
    else:
        watched = _watch(runtime, None, quiet=arguments.json, ended=launched.ended)
        _print(watched, arguments.json)
        code = launched.exit_code() or 0
    if not launched.ended():
        sys.stderr.write(f"bottletop: pid {launched.pid} goes on running\n")
    return code


def _child(pid: int) -> ProcessId:
    from bottletop.attach import NotAttachable, identify_child
    from bottletop.roots import Roots

    try:
        return identify_child(Roots(), pid)
    except NotAttachable as error:
        raise Refusal(str(error), CANNOT_WATCH) from None


# -- demo and rules ------------------------------------------------------------------------------


def _demo(arguments: argparse.Namespace) -> int:
    from bottletop import demo

    if arguments.list:
        for scenario in demo.SCENARIOS:
            _say(f"{scenario.name:14} {scenario.title}: {scenario.about}\n")
        return 0
    from bottletop.demo.scenarios import DemoUnavailable

    try:
        scenario = demo.find(arguments.scenario)
    except ValueError as error:
        raise Refusal(str(error)) from None
    try:
        with scenario.start(real_gpu=arguments.real_gpu) as running:
            watched = _watch_demo(running, scenario.needs_s, arguments)
    except DemoUnavailable as error:
        raise Refusal(str(error), CANNOT_WATCH) from None
    _print(watched, arguments.json)
    reached = demo.reached(scenario, watched.judgement)
    if not reached:
        wanted = scenario.expected or "nothing at warn or above"
        _complain(f"{scenario.name} did not lead to {wanted} within this watch", 1)
    return 0 if reached else 1


def _watch_demo(running: RunningDemo, needs_s: float, arguments: argparse.Namespace) -> Watch:
    from bottletop.headless import finished
    from bottletop.lifecycle import no_terminal_reason

    runtime = _runtime(
        root_process=_process_of(running.pid, None),
        collectors=running.collectors,
        simulated=running.simulated,
    )
    if arguments.json or no_terminal_reason() is not None or not _is_seen():
        return _watch(runtime, arguments.for_s or needs_s, quiet=arguments.json)
    _show(runtime, arguments, for_s=arguments.for_s)
    return finished(runtime)


def _rules(arguments: argparse.Namespace) -> int:
    from bottletop.rules import docs

    if arguments.code is None:
        _say(docs.listing())
        return 0
    explained = docs.explain(arguments.code)
    if explained is None:
        raise Refusal(f"no rule {arguments.code!r}; `bottletop rules` lists them")
    _say(explained)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
