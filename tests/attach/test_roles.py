"""Each process of the servers people run is given the part that it plays."""

from __future__ import annotations

import pytest

from bottletop.attach.roles import Identity, identify_role


def one(argv: str | list[str], comm: str = "python3", parent: Identity | None = None) -> Identity:
    words = argv.split() if isinstance(argv, str) else argv
    return identify_role(tuple(word.encode() for word in words), comm.encode(), parent)


@pytest.mark.parametrize(
    ("argv", "comm", "role"),
    [
        ("python3 /usr/bin/vllm serve Qwen/Qwen3-8B", "vllm", "api-server"),
        ("python3 -m vllm.entrypoints.openai.api_server --port 8000", "python3", "api-server"),
        (["VLLM::EngineCore_DP0"], "VLLM::EngineCor", "engine"),
        (["VLLM::Worker_TP0"], "VLLM::Worker_TP", "worker"),
        (["MYPREFIX::Worker_DP0_TP1_EP1"], "MYPREFIX::Worke", "worker"),
        (["VLLM::DPCoordinator"], "VLLM::DPCoordin", "coordinator"),
        ("python3 -m sglang.launch_server --tp 2", "python3", "api-server"),
        (["sglang::scheduler_TP0"], "sglang::schedul", "engine"),
        (["sglang::detokenizer"], "sglang::detoken", "detokenizer"),
        ("text-generation-launcher --model-id x", "text-generation", "launcher"),
        ("text-generation-router --port 80", "text-generation", "api-server"),
        ("tritonserver --model-repository /m", "tritonserver", "server"),
        ("/opt/triton_python_backend_stub /m 2", "triton_python_b", "worker"),
        ("llama-server -m x.gguf", "llama-server", "server"),
        ("ollama serve", "ollama", "api-server"),
        ("ollama runner --model /m", "ollama", "engine"),
        ("uvicorn app:api --workers 2", "uvicorn", "api-server"),
        (["gunicorn: master [app]"], "gunicorn: maste", "api-server"),
        (["gunicorn: worker [app]"], "gunicorn: worke", "worker"),
        ("torchrun --nproc-per-node 2 train.py", "torchrun", "launcher"),
        ("openclaw gateway", "openclaw", "gateway"),
        (["nginx: master process"], "nginx", "gateway"),
        ("python3 serve.py", "python3", "main"),
        ("python3 serve.py", "pt_data_worker", "loader-worker"),
        ("bash run.sh", "bash", "launcher"),
        (
            ["python3", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(5)"],
            "python3",
            "worker",
        ),
        (
            ["python3", "-c", "from multiprocessing.resource_tracker import main;main(4)"],
            "python3",
            "resource-tracker",
        ),
        (
            ["python3", "-c", "from multiprocessing.forkserver import main; main(4)"],
            "python3",
            "forkserver",
        ),
        (["ray::ServeReplica:app"], "ray::ServeRepli", "worker"),
    ],
)
def test_a_process_alone_is_known_by_what_it_runs(
    argv: str | list[str], comm: str, role: str
) -> None:
    assert one(argv, comm).role == role


def test_a_fork_of_a_server_is_a_worker_and_not_a_second_server() -> None:
    server = one("python3 /usr/bin/vllm serve m", "vllm")
    assert one("python3 /usr/bin/vllm serve m", "vllm", server).role == "worker"


def test_a_fork_of_a_shell_is_still_a_launcher() -> None:
    shell = one("bash run.sh", "bash")
    assert one("bash run.sh", "bash", shell).role == "launcher"


@pytest.mark.parametrize(
    ("parent", "role"),
    [
        ("bash run.sh", "main"),
        ("torchrun --nproc-per-node 2 train.py", "worker"),
        ("uvicorn app:api", "worker"),
        ("python3 serve.py", "child"),
    ],
)
def test_an_unknown_program_takes_its_part_from_its_parent(parent: str, role: str) -> None:
    assert one("python3 train.py", "python3", one(parent, parent.split()[0])).role == role
