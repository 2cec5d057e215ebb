"""States of torch's own Muon and Adafactor, tensor by tensor, beside the model's bytes."""

import pytest

from escala import catalog
from escala.catalog.families import network_from_config
from escala.model.estimate import estimate
from escala.model.plan import Plan, Plans
from escala.model.problem import Problem
from escala.model.workload import Workload
from escala.planning.defaults import OPTIMIZERS

pytestmark = pytest.mark.optional
SMALL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 3,
    "vocab_size": 320,
    "tie_word_embeddings": False,
}


def stepped(optimizer) -> float:
    """Bytes of the states after one step, without counters."""
    optimizer.step()
    states = (each for group in optimizer.state.values() for each in group.values() if each.ndim)
    return float(sum(each.numel() * each.element_size() for each in states))


@pytest.fixture(scope="module")
def model():
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    built = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL))
    for each in built.parameters():
        each.grad = torch.zeros_like(each)
    return built


def predicted(name: str) -> float:
    problem = Problem(
        workload=Workload(
            network=network_from_config(SMALL, "small", "small"),
            sequence_tokens=8,
            global_batch=1,
            optimizer=OPTIMIZERS[name],
        ),
        cluster=catalog.cluster_for("h100-sxm", 1),
        engine=catalog.engine("pytorch"),
        assumptions=catalog.assumptions(),
    )
    return float(estimate(problem, Plans.of(Plan())).memory.kinds.optimizer_bytes[0])


def test_adafactor_keeps_what_torch_keeps(model):
    from torch.optim import Adafactor

    assert stepped(Adafactor(model.parameters())) == predicted("adafactor")


def test_muon_beside_adamw_keeps_what_torch_keeps(model):
    from torch.optim import AdamW, Muon

    layers = [each for each in model.model.layers.parameters() if each.ndim == 2]
    known = {id(each) for each in layers}
    others = [each for each in model.parameters() if id(each) not in known]

    assert stepped(Muon(layers)) + stepped(AdamW(others)) == predicted("muon")
