"""`escala train` as a person runs it: two ranks on this processor, in processes of their own."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from escala.training.sinks import LINES, read_lines

pytestmark = [pytest.mark.optional, pytest.mark.slow]
SRC = Path(__file__).parents[2] / "src"
TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 264,
    "max_position_embeddings": 64,
}
STEPS = 24
PLAN = ("--gpus", "2", "--gpu", "h100-sxm", "--precision", "fp32", "--seq", "32", "--global-batch", "8")
FSDP = ("--fix", "compile=off,zero=3,reshard=true,micro_batch=2,recompute=none,fused_loss=false")


def escala(*arguments: str, where: Path, start: bool = False):
    """Run escala in a folder, or start it."""
    known = {"PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1", "ESCALA_CACHE_DIR": str(where / "cache")}
    command = [sys.executable, "-m", "escala", *arguments]
    given = {"cwd": where, "env": os.environ | known, "text": True}
    if start:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **given)
    return subprocess.run(command, capture_output=True, timeout=300, **given)


@pytest.fixture(scope="module")
def planned(tmp_path_factory) -> Path:
    """A folder with plan.json: FSDP over two devices."""
    folder = tmp_path_factory.mktemp("train")
    (folder / "tiny.json").write_text(json.dumps(TINY))
    done = escala("plan", "tiny.json", *PLAN, *FSDP, "-o", "plan.json", where=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def whole(planned: Path):
    """A run that nobody interrupts, as JSON; it was asked to go on where there is nothing yet."""
    line = ("train", "plan.json", "--steps", str(STEPS), "--eval-every", "12", "--device", "cpu")
    return escala(*line, "-o", "whole", "--resume", "--json", where=planned)


def test_a_plan_trains_and_is_set_beside_its_prediction(planned: Path, whole):
    assert whole.returncode == 0, whole.stderr
    assert (
        whole.stderr.count("whole holds no whole checkpoint to go on from, so the run begins at step 1") == 1
    )
    document = json.loads(whole.stdout)

    assert document["schema"] == "escala/train@1"
    assert (document["steps"], document["samples"]) == (STEPS, 8 * STEPS)
    assert document["last_loss"] < document["first_loss"]
    assert {each["quantity"] for each in document["verified"]["compared"]} >= {
        "step time",
        "memory, allocated",
    }
    assert document["profile"]["run_ranks"] == 2
    assert document["cause"]["part"]
    for name in ("job.json", LINES, "run.json", "verified-run.json", "trained.json", "report.html"):
        assert (planned / "whole" / name).is_file(), name


def test_every_step_is_a_line_and_evaluations_stand_where_they_were_asked_for(planned: Path, whole):
    records = read_lines(planned / "whole")

    assert [each.step for each in records] == list(range(1, STEPS + 1))
    assert [each.step for each in records if each.held_out_loss is not None] == [12, STEPS]
    assert sum(each.is_observed for each in records) == 4


def test_a_run_that_was_interrupted_goes_on_as_if_it_had_not_been(planned: Path, whole):
    line = ("train", "plan.json", "--steps", str(STEPS), "--eval-every", "12", "--device", "cpu", "-o", "cut")
    running = escala(*line, where=planned, start=True)
    path, began_s = planned / "cut" / LINES, time.monotonic()
    while (
        len(read_lines(planned / "cut")) < 3 and time.monotonic() < began_s + 120 and running.poll() is None
    ):
        time.sleep(0.05)
    second = escala(*line, "--resume", where=planned)
    running.send_signal(signal.SIGINT)
    out, said = running.communicate(timeout=120)
    assert running.returncode == 130, (out, said, path.exists())
    done = len(read_lines(planned / "cut"))
    assert 3 <= done < STEPS
    assert second.returncode == 2
    assert f"cut has a run that is going on (process {running.pid} on " in second.stderr
    assert second.stderr.count("\n") == 1
    told = path.read_text().splitlines(keepends=True)
    path.write_text("".join((told[0], "damaged\n", *told[1:])))

    again = escala(*line, "--resume", where=planned)

    assert again.returncode == 0, again.stderr
    cut, straight = read_lines(planned / "cut"), read_lines(planned / "whole")
    assert [each.step for each in cut] == list(range(1, STEPS + 1))
    assert [each.loss for each in cut] == pytest.approx([each.loss for each in straight], abs=5e-6)
    assert f"resumed after step {done}" in again.stdout
    assert "line 2 is no step of a run" in again.stderr
    assert "line 2 is no step of a run" in " ".join(again.stdout.split())


def test_a_folder_with_a_run_is_not_run_over(planned: Path, whole):
    again = escala("train", "plan.json", "--steps", "2", "-o", "whole", where=planned)

    assert again.returncode == 2
    assert "--resume" in again.stderr
    assert again.stderr.count("\n") == 1


def test_a_run_that_is_done_is_not_done_again(planned: Path, whole):
    kept = (planned / "whole" / "trained.json").read_bytes()

    again = escala("train", "--job", "whole/job.json", where=planned)

    assert again.returncode == 2
    assert "larger --steps" in again.stderr
    assert (planned / "whole" / "trained.json").read_bytes() == kept


def test_a_module_of_fewer_tokens_than_the_plan_is_refused(planned: Path):
    (planned / "small.json").write_text(json.dumps({**TINY, "vocab_size": 100}))
    line = ("train", "plan.json", "--steps", "2", "--module", "small.json", "--device", "cpu")

    done = escala(*line, "-o", "small", where=planned)

    assert done.returncode == 2, done.stderr
    assert "knows 100 tokens and the plan's network 264" in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--data", "nowhere"), "escala data prepare"),
        (("--steps", "1", "--minutes", "1"), "give one of them"),
        (("--decay", "sine"), "cosine"),
        (("--warmup", "3"), "--warmup 3 is longer than the run of 2 steps"),
        (("--sink", "paper"), "tensorboard"),
        (("--compress", "zip"), "powersgd"),
        (("--nodes", "3"), "does not divide the 2 devices"),
        (("--submit",), "--submit goes with --nodes"),
    ],
)
def test_wrong_input_is_one_line_and_code_2(planned: Path, options: tuple[str, ...], said: str):
    steps = () if "--steps" in options else ("--steps", "2")
    given = (*steps, *options, "--restarts", "0", "-o", f"no{options[0]}")
    done = escala("train", "plan.json", *given, where=planned)

    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_nodes_are_told_what_to_run(planned: Path):
    done = escala("train", "plan.json", "--steps", "2", "--nodes", "2", "-o", "far", where=planned)

    assert done.returncode == 0
    assert "torchrun --nnodes=2 --nproc-per-node=1" in done.stdout
    assert "#SBATCH --nodes=2" in done.stdout
    assert "escala train --job far/job.json" in done.stdout
