"""`escala verify --layouts`: whole comparisons run by `make test-hf`."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULE = """
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.map, self.calls = nn.Linear(16, 16), 0
        def forward(self, stream):
            self.calls += 1  # what is computed again is another function
            return stream + torch.tanh(self.map(stream)) * (1 + 0.1 * self.calls)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(64, 16), nn.Linear(16, 64)
            self.layers = nn.ModuleList([Block(), Block()])
            self.drop = nn.Dropout(0.5)
        def forward(self, tokens):
            stream = self.drop(self.table(tokens))
            for each in self.layers:
                stream = each(stream)
            return self.head(stream).clone()

    def build():
        return Net(), ("layers",)
"""
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 64,
    "max_position_embeddings": 16,
}
ASKED = ("--gpu", "h100-sxm", "--gpus", "2", "--precision", "fp32", "--seq", "16", "--global-batch", "4")


def escala(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join((str(ROOT / "src"), str(folder)))
    known = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "ESCALA_CACHE_DIR": str(folder / "cache")}
    return subprocess.run(
        [sys.executable, "-m", "escala", *arguments],
        cwd=folder,
        env=os.environ | known,
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.mark.optional
@pytest.mark.slow
def test_the_first_pass_that_changes_what_is_learned_is_named(tmp_path: Path):
    pytest.importorskip("torch")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "own_net.py").write_text(textwrap.dedent(MODULE))
    for name, fixed in {
        "same": "zero=0,tp=1,pp=1,cp=1,recompute=none",
        "broken": "zero=3,tp=1,pp=1,cp=1,recompute=full",
        "refused": "tp=2,pp=1,cp=1,recompute=none",
    }.items():
        fix = f"{fixed},compile=off,fused_loss=false,local_steps=1"
        made = escala(tmp_path, "plan", "config.json", *ASKED, "--fix", fix, "-o", f"{name}.json")
        assert made.returncode == 0, made.stderr

    files = ("same.json", "broken.json", "refused.json")
    given = ("--module", "own_net:build", "--device", "cpu", "--json")
    found = escala(tmp_path, "verify", "--layouts", *files, *given)

    assert found.returncode == 1, found.stderr
    document = json.loads(found.stdout)
    same, broken, refused = document["layouts"]
    assert document["schema"] == "escala/layouts@1"
    assert (same["verdict"], broken["verdict"], refused["verdict"]) == ("same", "differs", "refused")
    assert same["difference"]["weights"] <= document["tolerance"] < broken["difference"]["weights"]
    assert broken["first_pass"] == "recompute"
    assert broken["tried"] == [["replicas", "same"], ["recompute", "differs"]]
    assert "the plan cannot be run" in refused["reason"]


def test_options_of_layouts_are_refused_for_a_run(run):
    result = run("verify", "run.json", "--devices", "2")

    assert (result.code, "go with --layouts" in result.err) == (2, True)


def test_a_run_takes_one_plan(run):
    result = run("verify", "run.json", "a.json", "b.json")

    assert (result.code, "3 files were given" in result.err) == (2, True)
