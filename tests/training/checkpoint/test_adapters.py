"""Exported adapters are what peft loads, and added to their weights what transformers loads."""

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.optional,
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # of what peft calls in transformers
]
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft", reason="peft is not installed (extra lora)")
pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed (extra lora)")

from escala.model.plan import Precision  # noqa: E402
from escala.model.workload import Lora, Method, Workload  # noqa: E402
from escala.parallel.lora import adapt  # noqa: E402
from escala.parallel.parts import parts_of  # noqa: E402
from escala.training.checkpoint import Checkpoints, Form, TrainState, export, latest  # noqa: E402
from parallel.models import KINDS, network  # noqa: E402

TOKENS = torch.arange(8)[None]
SQUARE = ("o",)
"""Of GPT-2 the only map that is as wide as long, so that its shape does not tell how it is stored."""


def trained(folder: Path, kind: str, method: Method, *targets: str):
    """Save a model with adapters that a step could have left; the model before, and with them."""
    torch.manual_seed(3)
    before = KINDS[kind]()
    model, config = copy.deepcopy(before), before.config.to_dict()
    lora = Lora(rank=4, targets=targets or Lora().targets)
    work = Workload(network=network(), sequence_tokens=8, global_batch=2, method=method, lora=lora)
    facts = adapt(model, parts_of(model), work, Precision.FP32)
    learned = [each for each in model.parameters() if each.requires_grad]
    for each in learned:
        torch.nn.init.normal_(each, std=0.3)
    state = TrainState(chunks=(model,), optimizer=torch.optim.SGD(learned), config=config, adapter=facts)
    Checkpoints(folder).save(state)
    return before, model


CASES = [("hf-llama", ()), ("hf-gpt2", ()), ("hf-gpt2", SQUARE)]


@pytest.mark.parametrize(("kind", "targets"), CASES, ids=["llama", "gpt2", "gpt2-square"])
def test_adapters_alone_or_added_give_the_logits_that_were_trained(tmp_path: Path, kind: str, targets):
    before, model = trained(tmp_path / "run", kind, Method.LORA, *targets)

    export(latest(tmp_path / "run"), tmp_path / "adapter", Form.ADAPTER)
    export(latest(tmp_path / "run"), tmp_path / "merged", Form.MERGED)

    wanted, plain = model(TOKENS).logits, before(TOKENS).logits
    assert not torch.allclose(plain, wanted, atol=1e-2)
    whole = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    torch.testing.assert_close(whole(TOKENS).logits, wanted, rtol=0, atol=1e-5)
    beside = peft.PeftModel.from_pretrained(before, tmp_path / "adapter")
    assert isinstance(beside, peft.PeftModelForCausalLM)
    torch.testing.assert_close(beside(TOKENS).logits, wanted, rtol=0, atol=1e-6)


def test_weights_of_four_bits_are_made_whole_when_adapters_are_added(tmp_path: Path):
    _, model = trained(tmp_path / "run", "hf-llama", Method.QLORA)

    done = export(latest(tmp_path / "run"), tmp_path / "merged", Form.MERGED)

    whole = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    torch.testing.assert_close(whole(TOKENS).logits, model(TOKENS).logits, rtol=0, atol=1e-4)
    assert done.parameters == sum(each.numel() for each in whole.parameters())


TINY = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, "intermediate_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 264,
    "max_position_embeddings": 64,
}  # fmt: skip
PLAN = (
    "plan", "tiny.json", "--gpus", "2", "--gpu", "h100-sxm", "--precision", "bf16", "--seq", "32",
    "--global-batch", "8", "--method", "qlora", "--lora-rank", "4", "-o", "plan.json",
    "--fix", "compile=off,zero=3,reshard=true,micro_batch=2,recompute=none,fused_loss=false",
)  # fmt: skip
TRAIN = ("train", "plan.json", "--module", "tiny.json", "--device", "cpu", "--lr", "0.02", "-o", "run")


def escala(*arguments: str, where: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "escala", *arguments], cwd=where, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
def test_a_planned_qlora_run_is_trained_resumed_and_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", ":".join(each for each in sys.path if each))
    monkeypatch.setenv("ESCALA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "tiny.json").write_text(json.dumps(TINY))
    escala(*PLAN, where=tmp_path)

    escala(*TRAIN, "--steps", "3", where=tmp_path)
    again = escala(*TRAIN, "--steps", "6", "--resume", where=tmp_path)
    alone = json.loads(escala("export", "run", "-o", "adapter", "--adapter", "--json", where=tmp_path).stdout)
    whole = json.loads(escala("export", "run", "-o", "model", "--merged", "--json", where=tmp_path).stdout)

    assert "resumed after step 3" in again.stdout
    assert (alone["schema"], alone["step"], alone["form"]) == ("escala/export@1", 6, "adapter")
    assert "only --merged brings them along" in alone["notes"][0]
    merged = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert whole["parameters"] == sum(each.numel() for each in merged.parameters())
    beside = peft.PeftModel.from_pretrained(copy.deepcopy(merged), tmp_path / "adapter")
    assert not torch.equal(beside(TOKENS).logits, merged(TOKENS).logits)
