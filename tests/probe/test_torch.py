"""The probe around a real torch loop on the CPU."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from probelab import OWN, Program

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.torch

LOOP = """
import warnings
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
import torch
torch.manual_seed(0)
torch.set_num_threads(1)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(),
                                          torch.nn.Linear(512, 10))
    @stage("forward")
    def forward(self, x):
        return self.layers(x)

model = Model().eval()
"""


def test_a_torch_loop_shows_its_stages_and_computes_the_same(tmp_path: Path) -> None:
    source = (
        LOOP
        + """
with torch.inference_mode():
    for _ in range(50):
        with stage("step"):
            with stage("preprocess"):
                batch = torch.rand(32, 256).sub_(0.5).div_(0.25)
            result = model(batch)
            with stage("postprocess"):
                result.softmax(1).argmax(1).tolist()
    assert torch.equal(result, model.layers(batch))
hold()
"""
    )
    with Program(OWN, source, tmp_path) as program:
        program.until_ready()
        stages = program.stages()
        parts = [stages[name] for name in ("preprocess", "forward", "postprocess")]
        assert [one.calls for one in parts] == [50] * 3
        step = stages["step"]
        assert step.self_ns == step.inclusive_ns - sum(one.inclusive_ns for one in parts)
        assert min(one.inclusive_ns for one in parts) > 0
        program.finish()


def test_a_decorated_forward_still_compiles_and_exports_its_weights(tmp_path: Path) -> None:
    source = (
        LOOP
        + """
compiled = torch.compile(model, backend="eager")
batch = torch.rand(4, 256)
with torch.inference_mode():
    for _ in range(3):
        assert torch.allclose(compiled(batch), model.layers(batch))

def step(x):
    with stage("inside"):
        return torch.sin(x) + 1
assert torch.allclose(torch.compile(step, backend="eager")(batch), torch.sin(batch) + 1)

import copy, io, pickle
assert copy.deepcopy(model)(batch).shape == (4, 10)
stream = io.BytesIO()
torch.save(model.state_dict(), stream)
assert pickle.loads(pickle.dumps(model))(batch).shape == (4, 10)
hold()
"""
    )
    with Program(OWN, source, tmp_path) as program:
        program.until_ready()
        assert program.stages()["forward"].calls >= 5
        program.finish()


def test_workers_of_a_data_loader_count_in_memory_of_their_own(tmp_path: Path) -> None:
    source = (
        LOOP
        + """
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, index):
        with stage("load"):
            return torch.full((8,), index / 40), os.getpid()
loader = DataLoader(Data(), batch_size=5, num_workers=2, persistent_workers=True)
workers = set()
for _, pids in loader:
    with stage("step"):
        workers.update(pids.tolist())
say(*workers)
hold()
"""
    )
    with Program(OWN, source, tmp_path) as program:
        workers = [int(word) for word in program.until_ready()[-1].split()]
        assert len(workers) == 2
        mine = {name: one.calls for name, one in program.stages().items()}
        assert mine == {"forward": 0, "step": 8}  # named by its decorator, and never run
        loaded = [program.stages(worker)["load"].calls for worker in workers]
        assert sum(loaded) == 40
        assert min(loaded) > 0


def test_these_tests_do_not_load_torch_themselves() -> None:
    assert "torch" not in sys.modules
