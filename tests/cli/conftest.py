import gzip
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from escala.cli.app import main
from escala.formats.bench_cluster import bench_of
from escala.formats.files import read_keys

EIGHT = ("llama-3.1-8b", "--gpus", "8", "--gpu", "h100-sxm")
BENCH = Path(__file__).parents[1] / "formats" / "data" / "bench.json"
TRACES = Path(__file__).parents[1] / "measurement" / "profile" / "data"
LOGS = Path(__file__).parents[1] / "measurement" / "data"
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def longest(self) -> int:
        return max((len(ANSI.sub("", line)) for line in self.out.splitlines()), default=0)


Run = Callable[..., Result]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs escala as the console script does, in an empty folder, 80 columns wide, without any setting."""
    for name in [name for name in os.environ if name.startswith("ESCALA_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr("click.get_app_dir", lambda name: str(tmp_path / "config"))
    monkeypatch.setenv("ESCALA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.chdir(tmp_path)

    def once(*arguments: str) -> Result:
        code = main(list(arguments))
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return once


@pytest.fixture
def eight() -> tuple[str, ...]:
    return EIGHT


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bench that was made before, where the demo would measure."""
    document = bench_of(read_keys(BENCH))
    monkeypatch.setattr("escala.cli.bench.measured", lambda asked: document)


@pytest.fixture(scope="session")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with plan.json and the last run of Llama-3.1-8B on 8 H100, made once."""
    folder = tmp_path_factory.mktemp("answered")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ESCALA_CACHE_DIR", str(folder / "cache"))
        assert main(["plan", *EIGHT, "-o", str(folder / "plan.json"), "--json"]) == 0
    return folder


@pytest.fixture
def traces(run: Run, tmp_path: Path) -> Path:
    """Real traces of two ranks, as if they were of 8 on H100: rank0.json, rank1.json, and in a folder."""
    (tmp_path / "traces").mkdir()
    for rank in (0, 1):
        keys = json.loads(gzip.decompress((TRACES / f"rank{rank}.json.gz").read_bytes()))
        keys["distributedInfo"]["world_size"] = 8
        keys["deviceProperties"] = [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]
        for name in (f"rank{rank}.json", f"traces/rank{rank}.json", "trace.json"):
            (tmp_path / name).write_text(json.dumps(keys))
    return tmp_path / "trace.json"


@pytest.fixture
def logs(run: Run, tmp_path: Path) -> Path:
    """Logs of a run on 8 devices in the current folder, and run.json, which says neither batch nor length."""
    shutil.copy(LOGS / "megatron.log", tmp_path / "train.log")
    shutil.copy(LOGS / "nvidia-smi.csv", tmp_path)
    shutil.copytree(LOGS / "mlruns", tmp_path / "mlruns")
    assert run("record", "train.log", "nvidia-smi.csv", "--out", "run.json").code == 0
    keys = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**keys, "global_batch": None, "sequence_tokens": None}))
    return tmp_path / "run.json"


@pytest.fixture
def planned(run: Run, answered: Path, tmp_path: Path) -> Path:
    """plan.json of Llama-3.1-8B on 8 H100 in the current folder, which is also the last run."""
    shutil.copytree(answered, tmp_path, dirs_exist_ok=True)
    return tmp_path / "plan.json"
