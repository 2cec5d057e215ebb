"""What is printed for several nodes is what torchrun and sbatch take."""

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from escala.errors import InvalidInput
from escala.training.launch import nodes_of, sbatch_script, submit, torchrun_line

COMMAND = ["-m", "escala", "train", "my plan.json"]


def test_one_line_serves_every_node():
    line = torchrun_line(replace(nodes_of(16, 8), host="gpu1"), COMMAND)

    assert line == (
        "torchrun --nnodes=2 --nproc-per-node=8 --max-restarts=3 --rdzv-backend=c10d --rdzv-id=escala "
        "--rdzv-endpoint=gpu1:29400 -m escala train 'my plan.json'"
    )


def test_the_script_starts_torchrun_once_a_node():
    script = sbatch_script(nodes_of(16, 8), COMMAND)

    assert "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n" in script
    assert "srun --kill-on-bad-exit=1 torchrun --nnodes=2 --nproc-per-node=8" in script
    assert "'my plan.json'" in script


def test_a_script_for_processors_asks_for_no_gpus():
    assert "gpus" not in sbatch_script(nodes_of(4, 2, has_gpus=False), COMMAND)


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_reads_the_script():
    script = sbatch_script(nodes_of(16, 8), COMMAND)

    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


def test_devices_have_to_fill_their_nodes():
    with pytest.raises(InvalidInput, match="12 devices are not nodes of 8"):
        nodes_of(12, 8)


def fake(folder: Path, text: str) -> None:
    path = folder / "sbatch"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_sbatch_gets_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fake(tmp_path, f"cat > {tmp_path}/got; echo Submitted batch job 7")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    assert submit("#!/bin/bash\n") == "Submitted batch job 7"
    assert (tmp_path / "got").read_text() == "#!/bin/bash\n"


def test_what_sbatch_refuses_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    fake(tmp_path, "echo 'invalid partition' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    with pytest.raises(InvalidInput, match=r"sbatch refused the script \(invalid partition\)"):
        submit("x")


def test_without_slurm_the_script_is_to_be_taken_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(InvalidInput, match="no sbatch here"):
        submit("x")
