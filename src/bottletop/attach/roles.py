"""What part a process plays in its tree, told from its name, its command line and its parent.

Titles and entry points are those that the servers themselves use: vLLM sets `VLLM::EngineCore` and
`VLLM::Worker_TP0` (any prefix, VLLM_PROCESS_NAME_PREFIX), SGLang `sglang::scheduler_TP0`, PyTorch
names its loader workers' main threads `pt_data_worker`, Ray sets `ray::Actor.method`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from bottletop.linux.command import Command, describe

_TITLES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"::\s*EngineCore"), "engine"),
    (re.compile(r"::\s*(?:Ray|TP|PP|DP|EP)?_?Worker", re.IGNORECASE), "worker"),
    (re.compile(r"::\s*DPCoordinator|::\s*Router"), "coordinator"),
    (re.compile(r"::\s*(?:APIServer|ApiServer|http_server|tokenizer_manager)"), "api-server"),
    (re.compile(r"\bsglang::scheduler"), "engine"),
    (re.compile(r"\bsglang::detokenizer"), "detokenizer"),
    (re.compile(r"\bsglang::data_parallel"), "coordinator"),
    (re.compile(r"\bray::(?:ProxyActor|HTTPProxy|ServeController)"), "api-server"),
    (re.compile(r"\bray::"), "worker"),
    (re.compile(r"\bgunicorn: master"), "api-server"),
    (re.compile(r"\bgunicorn: worker|\bcelery.*(?:Worker|Pool)|\bnginx: worker"), "worker"),
    (re.compile(r"\bnginx: master"), "gateway"),
)

_PROGRAMS: dict[str, str] = {
    "tritonserver": "server",
    "triton_python_backend_stub": "worker",
    "llama-server": "server",
    "llamafile": "server",
    "ollama": "api-server",
    "text-generation-launcher": "launcher",
    "text-generation-router": "api-server",
    "text-generation-router-v2": "api-server",
    "text-generation-server": "worker",
    "trtllm-serve": "api-server",
    "vllm": "api-server",
    "sglang": "api-server",
    "sglang.launch_server": "api-server",
    "lmdeploy": "api-server",
    "uvicorn": "api-server",
    "hypercorn": "api-server",
    "granian": "api-server",
    "gunicorn": "api-server",
    "fastapi": "api-server",
    "bentoml": "api-server",
    "torchserve": "api-server",
    "openclaw": "gateway",
    "openclaw-gateway": "gateway",
    "litellm": "gateway",
    "nginx": "gateway",
    "envoy": "gateway",
    "haproxy": "gateway",
    "traefik": "gateway",
    "caddy": "gateway",
    "raylet": "launcher",
    "gcs_server": "launcher",
    "torchrun": "launcher",
    "torch.distributed.run": "launcher",
    "torch.distributed.launch": "launcher",
    "accelerate": "launcher",
    "deepspeed": "launcher",
    "mpirun": "launcher",
    "mpiexec": "launcher",
    "orterun": "launcher",
    "srun": "launcher",
    "conda": "launcher",
    "uv": "launcher",
    "sudo": "launcher",
    "tini": "launcher",
    "dumb-init": "launcher",
    "docker-init": "launcher",
    "s6-supervise": "launcher",
    "supervisord": "launcher",
    "timeout": "launcher",
    "sh": "launcher",
    "bash": "launcher",
    "dash": "launcher",
    "zsh": "launcher",
}
_ENTRY_POINTS: tuple[tuple[str, str], ...] = (
    ("vllm.entrypoints.", "api-server"),
    ("sglang.srt.entrypoints", "api-server"),
    ("lmdeploy.serve", "api-server"),
)
_LOADERS = ("pt_data_worker", "DataLoader")
_MULTIPROCESSING = (
    (b"multiprocessing.resource_tracker", "resource-tracker"),
    (b"multiprocessing.forkserver", "forkserver"),
    (b"multiprocessing.spawn", "worker"),
    (b"multiprocessing-fork", "worker"),
)
_CHILDREN_OF = {"api-server": "worker", "launcher": "main", "gateway": "worker", "server": "worker"}
_STARTS_RANKS = frozenset(
    {
        "torchrun",
        "torch.distributed.run",
        "torch.distributed.launch",
        "accelerate",
        "deepspeed",
        "mpirun",
        "mpiexec",
        "orterun",
        "srun",
    }
)


class Identity(NamedTuple):
    """What a process is: its command line taken apart and its role."""

    argv: tuple[bytes, ...]
    command: Command
    role: str


def identify_role(argv: tuple[bytes, ...], comm: bytes, parent: Identity | None) -> Identity:
    """Say what one process is. `parent` is its parent within the tree, None for the root."""
    command = describe(argv, comm)
    return Identity(argv, command, _role(argv, command, comm.decode("utf-8", "replace"), parent))


def _role(argv: tuple[bytes, ...], command: Command, comm: str, parent: Identity | None) -> str:
    """What it says of itself first, then what it runs, then where it stands in the tree."""
    if comm.startswith(_LOADERS):
        return "loader-worker"
    for pattern, role in _TITLES:
        if pattern.search(command.title or comm):
            return role
    joined = b" ".join(argv[1:8])
    for mark, role in _MULTIPROCESSING:
        if mark in joined:
            return role
    known = _by_program(command, argv)
    if parent is not None and argv and argv == parent.argv and known != "launcher":
        # A fork that did not exec: a pool or loader worker, never a second server.
        return "worker"
    if known or parent is None:
        return known or "main"
    if _main(parent.command) in _STARTS_RANKS:
        return "worker"
    return _CHILDREN_OF.get(parent.role, "child")


def _main(command: Command) -> str:
    return command.script or command.program


def _by_program(command: Command, argv: tuple[bytes, ...]) -> str:
    if command.program == "ollama" and len(argv) > 1 and argv[1] == b"runner":
        return "engine"
    main = _main(command)
    for prefix, role in _ENTRY_POINTS:
        if main.startswith(prefix):
            return role
    # A script run by a shell is still the shell's work: it starts others and waits.
    return _PROGRAMS.get(main) or _PROGRAMS.get(command.program, "")
