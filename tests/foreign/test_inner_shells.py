"""Command lines in texts that other shells are given are read as those of the script itself."""

from pathlib import Path

import pytest

from escala.foreign.jobs import read_job
from escala.foreign.shelltext import read_shell
from foreign.judging import job_of, lines_of, values_of

LINES = {
    "torchrun": "torchrun --nnodes=2 --nproc-per-node=4 t.py",
    "accelerate": "accelerate launch --num_machines 2 --num_processes 8 t.py",
    "deepspeed": "deepspeed --num_nodes 2 --num_gpus 4 t.py",
    "llamafactory": "llamafactory-cli train --stage sft --per_device_train_batch_size 2",
    "axolotl": "axolotl train a.yaml",
    "trl": "trl sft --model_name_or_path m --per_device_train_batch_size 2",
    "megatron": "python pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1 --num-layers 4",
}
ACCELERATE = (
    "distributed_type: MULTI_GPU\ncompute_environment: LOCAL_MACHINE\nnum_machines: 2\nnum_processes: 16\n"
    "rdzv_backend: c10d\nsame_network: true\n"
)
NETWORK = "--config_file a.yaml --main_process_ip $head --main_process_port 29500 t.py"


@pytest.mark.parametrize("shell", ["bash -c '{}'", "srun sh -lc '{}'", 'srun -N2 bash -ec "cd x && {}"'])
@pytest.mark.parametrize("tool", LINES)
def test_every_launcher_is_read_inside_another_shell(tmp_path: Path, tool: str, shell: str) -> None:
    plain, inner = tmp_path / "plain.sh", tmp_path / "inner.sh"
    plain.write_text(LINES[tool] + "\n")
    inner.write_text(shell.format(LINES[tool]) + "\n")

    wanted, found = read_job([str(plain)], {}, {}), read_job([str(inner)], {}, {})

    assert wanted.reads(tool)
    assert found.reads(tool)
    assert values_of(found) == values_of(wanted)


@pytest.mark.parametrize(
    "line", [f"srun accelerate launch {NETWORK}", f"srun bash -c 'accelerate launch {NETWORK}'"]
)
def test_an_address_that_a_command_finds_is_one_word(tmp_path: Path, line: str) -> None:
    script = f"head=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)\n{line}\n"

    found = job_of(tmp_path, {"a.sh": script, "a.yaml": ACCELERATE})

    assert found.reads("accelerate")
    assert lines_of(found, "accelerate-no-address") == []
    assert lines_of(found, "accelerate-no-port") == []


def test_words_of_an_inner_shell_have_their_own_places() -> None:
    text = "srun bash -c 'a --x \\\n  --y 3'\n"

    [inner] = read_shell(text, "a.sh").inner

    assert [text[word.place.start : word.place.end] for word in inner.words] == ["a", "--x", "--y", "3"]
    assert [word.place.line for word in inner.words] == [1, 1, 2, 2]


def test_a_text_for_another_program_is_no_command() -> None:
    assert read_shell("echo 'run torchrun t.py'\npython -c 'import torch'\n", "a.sh").inner == ()
