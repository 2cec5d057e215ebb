"""Whole steps of small jobs on this machine's processor; run by `make test-hf`."""

import errno
import importlib
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from escala.errors import InvalidInput
from escala.measurement.bench.host import host_facts, usable_cores
from escala.measurement.job.request import Sizes, StepRequest

pytestmark = pytest.mark.optional
torch = pytest.importorskip("torch", reason="a step runs on PyTorch")

# 0.02 s a sample * 4 samples a batch: fetching takes far longer than the step
JOB = """
    import time
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    class Slow(Dataset):
        def __len__(self):
            return 64
        def __getitem__(self, index):
            time.sleep(0.02)
            return torch.randn(16), index % 4

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(16, 512), nn.Linear(512, 16)
        def forward(self, x):
            return x + self.down(torch.relu(self.up(x)))

    def loss(model, batch):
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    def network():
        torch.manual_seed(0)
        return nn.Sequential(*[Block() for _ in range(4)], nn.Linear(16, 4))

    def waits():
        model = network()
        return model, torch.optim.AdamW(model.parameters()), DataLoader(Slow(), batch_size=4), loss

    def computes():
        model = network()
        batches = [(torch.randn(1024, 16), torch.randint(4, (1024,)))]
        return model, torch.optim.AdamW(model.parameters()), batches, loss

    def alone():
        model, optimizer, batches, loss = computes()
        def step():
            loss(model, batches[0]).backward()
            optimizer.step()
        return step
"""
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 128,
}


SIZES = Sizes(micro_batch=1, sequence_tokens=None, precision="fp32")


def asked(target: str, folder: Path, **given) -> StepRequest:
    usual = {"sizes": SIZES, "steps": 6, "rounds": 6}
    return StepRequest(target=target, kind="cpu", folder=folder, **(usual | given))


def ran(request: StepRequest):
    from escala.measurement.job.run import run_step

    found = run_step(request, lambda what, left_s: None)
    assert found is not None
    return found


def test_a_tiny_llama_is_timed_counted_and_traced(tmp_path: Path):
    pytest.importorskip("transformers", reason="the model is of transformers")
    sizes = Sizes(micro_batch=2, sequence_tokens=32, precision="fp32")

    found = ran(asked("tiny", tmp_path, keys=LLAMA, sizes=sizes))

    # a layer: q and o 64 * 64, k and v 64 * 32, three maps 64 * 128; the embedding multiplies nothing
    products = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128) + 256 * 64
    # attention: 2 FLOP * 2 samples * 32^2 * 64, two products in forward, five in backward, 2 layers
    attention = 2 * 7 * 2 * 2 * 32 * 32 * 64
    assert found.flop == 6 * products * 64 + attention
    assert (found.model, found.samples, found.tokens) == ("LlamaForCausalLM", 2, 64)
    assert found.memory is not None
    assert found.memory.parameters_bytes == 4 * found.parameters
    assert found.memory.optimizer_bytes == pytest.approx(2 * 4 * found.parameters, rel=0.01)
    assert found.step_s.samples == 6
    assert (tmp_path / "rank0.json.gz").stat().st_size > 1000
    assert found.usage[0].cpu_s > 0
    assert (tmp_path / "samples.jsonl").read_text().startswith('{"schema":"escala/sample@1"')


def test_recomputing_keeps_fewer_activations(tmp_path: Path):
    pytest.importorskip("transformers", reason="the model is of transformers")
    keys = {**LLAMA, "num_hidden_layers": 6, "vocab_size": 64}
    sizes = {"micro_batch": 2, "sequence_tokens": 64, "precision": "fp32"}

    plain = ran(asked("tiny", tmp_path, keys=keys, sizes=Sizes(**sizes), steps=1))
    again = ran(asked("tiny", tmp_path, keys=keys, sizes=Sizes(**sizes, recomputes=True), steps=1))

    assert plain.memory is not None
    assert again.memory is not None
    assert again.memory.activations_bytes < 0.7 * plain.memory.activations_bytes
    assert again.peak_bytes < 0.8 * plain.peak_bytes
    assert again.flop > 1.2 * plain.flop  # three passes and one more forward


def test_the_peak_of_the_allocator_is_that_of_the_tracker(tmp_path: Path, write):
    found = ran(asked(f"{write(textwrap.dedent(JOB))}:computes", tmp_path, steps=1))

    # two accounts of the same step: tensors that torch dispatched, and bytes that its allocator gave
    assert found.peak_bytes == pytest.approx(found.memory.peak_bytes, rel=0.02)


def test_practices_are_compared_with_the_plain_step(tmp_path: Path, write):
    name = write(textwrap.dedent(JOB))
    practices = ("checkpointing", "accumulation", "workers", "fused-optimizer", "amp")

    tried = ran(asked(f"{name}:computes", tmp_path, steps=1, rounds=1, practices=practices)).what_if

    assert tried is not None
    found = {each.practice: each for each in tried.tried}
    assert (found["workers"].verdict, found["workers"].why) == (
        "failed",
        "the batches are a list, not a DataLoader",
    )
    # relu and both maps of a block keep 2 * 512 * 1024 numbers; a checkpointed one only its input
    assert found["checkpointing"].peak_bytes < 0.6 * tried.plain.peak_bytes
    assert found["accumulation"].peak_bytes < 0.7 * tried.plain.peak_bytes
    for practice in ("checkpointing", "accumulation", "fused-optimizer"):
        assert found[practice].loss == pytest.approx(tried.plain.loss, rel=1e-5)
    assert 0 < abs(found["amp"].loss_change) < 0.05
    assert {each.verdict for each in tried.tried} == {"undecided", "failed"}  # after one round


def test_workers_feed_a_job_that_waits_for_its_data(tmp_path: Path, write):
    name = write(textwrap.dedent(JOB))

    found = ran(asked(f"{name}:waits", tmp_path, steps=2, rounds=6, practices=("workers",)))

    (workers,) = found.what_if.tried
    # a batch takes 80 ms to fetch, by two workers 40 ms; other programs may blur that, but not turn it round
    assert workers.gain.median > 1.1 or usable_cores(host_facts()) == 1
    assert workers.verdict in ("faster", "within the noise")
    assert workers.loss == found.what_if.plain.loss


def test_a_step_alone_has_no_parts_and_cannot_be_varied(tmp_path: Path, write):
    name = write(textwrap.dedent(JOB))

    found = ran(asked(f"{name}:alone", tmp_path, steps=1))

    assert (found.model, found.samples, found.memory, found.rate_per_s) == (None, None, None, None)
    assert found.flop > 0
    with pytest.raises(InvalidInput, match="returned a step alone; return"):
        ran(asked(f"{name}:alone", tmp_path, practices=("amp",)))


def test_a_practice_that_fails_does_not_stop_the_others(tmp_path: Path, write):
    name = write(
        textwrap.dedent(JOB)
        + textwrap.dedent("""
            def stubborn():
                model, optimizer, batches, loss = computes()
                def whole(model, batch):
                    assert len(batch[0]) == 1024, "only whole batches"
                    return loss(model, batch)
                return model, optimizer, batches, whole
            """)
    )

    found = ran(
        asked(f"{name}:stubborn", tmp_path, steps=1, rounds=1, practices=("accumulation", "fused-optimizer"))
    )

    split, fused = found.what_if.tried
    assert split.verdict == "failed"
    assert "raised AssertionError: only whole batches" in split.why
    assert fused.verdict != "failed"


def test_two_ranks_are_one_data_parallel_job(tmp_path: Path, write):
    name = write(textwrap.dedent(JOB))
    script = tmp_path / "both.py"
    script.write_text(
        textwrap.dedent(f"""
            import sys
            from pathlib import Path
            import msgspec
            from escala.measurement.job.request import Sizes, StepRequest
            from escala.measurement.job.run import run_step
            found = run_step(
                StepRequest(target="{name}:computes", kind="cpu", steps=3, rounds=1,
                            folder=Path("{tmp_path}"), practices=("accumulation",),
                            sizes=Sizes(micro_batch=1, sequence_tokens=None, precision="fp32")),
                lambda what, left_s: None)
            if found is not None:
                Path("found.json").write_bytes(msgspec.json.encode(found))
            """)
    )
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        str(script),
    ]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ}, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-2000:]

    import json

    found = json.loads((tmp_path / "found.json").read_text())
    assert found["ranks"] == 2
    assert found["notes"][0] == "the model was wrapped in DistributedDataParallel"
    assert (tmp_path / "rank1.json.gz").is_file()
    assert len(found["usage"]) == 2
    assert found["what_if"]["tried"][0]["verdict"] == "undecided"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler calls older parts of torch
def test_compiling_is_tried_too_and_its_first_step_told_apart(tmp_path: Path, write):
    name = write(textwrap.dedent(JOB))

    tried = ran(asked(f"{name}:computes", tmp_path, steps=1, rounds=1, practices=("compile",))).what_if

    (compiled,) = tried.tried
    if compiled.verdict == "failed":  # torch.compile needs a compiler, which a machine may lack
        assert "ompiler" in compiled.why
        return
    assert compiled.first_step_s > compiled.step_s.median
    assert compiled.loss == pytest.approx(tried.plain.loss, rel=1e-4)


def test_a_disk_that_is_full_is_told_with_the_path(tmp_path: Path):
    trace = importlib.import_module("escala.measurement.job.trace")  # loads torch

    class Full:
        def export_chrome_trace(self, path: str) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    with pytest.raises(InvalidInput, match=r"rank0\.json\.gz cannot be written \(no space left on device\)"):
        trace.exported(Full(), tmp_path / "rank0.json.gz")
