"""Modules run without data: own ones by hand arithmetic, those of transformers beside the formula."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from escala.catalog import assumptions, cluster_for, engine
from escala.catalog.families import network_from_config
from escala.errors import InvalidInput
from escala.measurement.job.fault import UserFault
from escala.measurement.modules.request import ModuleRequest, shape_of
from escala.measurement.tracing.software import as_traced
from escala.model.estimate import estimate
from escala.model.flops import forward_flop
from escala.model.network import Network
from escala.model.parameters import network_parameters
from escala.model.plan import Plan, Plans, Recompute
from escala.model.problem import Problem
from escala.model.traces import Attended, Grows, Product
from escala.model.workload import Workload
from escala.planning.search import search

if TYPE_CHECKING:
    from escala.measurement.modules.trace import TracedModule

pytestmark = pytest.mark.optional
torch = pytest.importorskip("torch", reason="modules are PyTorch's")
nn, functional = torch.nn, torch.nn.functional
HERE = __file__
TOKENS = 512


def quiet(_what: str) -> None: ...


def traced(name: str, **sizes: Any) -> "TracedModule":
    from escala.measurement.modules.trace import trace

    return trace(ModuleRequest(target=f"{HERE}:{name}", **sizes), quiet)


def problem(network: Network, batch: int = 64) -> Problem:
    length = network.main.tokens or network.traced_tokens or TOKENS
    return Problem(
        workload=Workload(network=network, sequence_tokens=length, global_batch=batch),
        cluster=cluster_for("h100-sxm", 8),
        engine=engine("pytorch"),
        assumptions=assumptions(),
    )


# Modules of one's own


def mlp() -> Any:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)), torch.zeros(4, 64)


def stacked() -> Any:
    return Stacked(nn.ModuleList(nn.Linear(32, 32, bias=False) for _ in range(3)))


class Stacked(nn.Module):
    def __init__(self, blocks: "nn.ModuleList") -> None:
        super().__init__()
        self.blocks, self.head = blocks, nn.Linear(32, 5)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        for each in self.blocks:
            given = each(given).tanh()
        return self.head(given)


class Double(nn.Sequential):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
        )


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.low = Double(3, 8), Double(8, 16)
        self.up, self.out = nn.ConvTranspose2d(16, 8, 2, stride=2), nn.Conv2d(16, 2, 1)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        high = self.down(given)
        return self.out(torch.cat([self.up(self.low(functional.max_pool2d(high, 2))), high], 1))


def unet() -> Any:
    def loss(module: nn.Module, batch: Any) -> torch.Tensor:
        return functional.cross_entropy(module(batch[0]), batch[1])

    def batch(samples: int) -> Any:
        return torch.zeros(samples, 3, 32, 32), torch.zeros(samples, 32, 32, dtype=torch.long)

    return UNet(), batch, loss


def encoder() -> Any:
    layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 3), torch.zeros(2, 32, 64)


def test_a_small_perceptron_by_hand():
    found = traced("mlp")
    stack = found.network.main
    first, second = (block.parts[0] for block in stack.blocks)

    # a row of each sample through 64 x 128 and 128 x 10
    assert first.products == (Product(rows=1.0, inner=64.0, outer=128.0),)
    assert second.products == (Product(rows=1.0, inner=128.0, outer=10.0),)
    assert found.flop == 2 * (64 * 128 + 128 * 10)
    # the weight gradient of the first map, both gradients of the second
    assert found.backward_flop == 2 * (64 * 128 + 2 * 128 * 10)
    assert network_parameters(found.network).total == 64 * 128 + 128 + 128 * 10 + 10
    # the first map keeps its 64 inputs, 4 or 2 bytes each; what ReLU and the second keep is one tensor of 128
    assert (first.fp32.kept_bytes, first.autocast.kept_bytes, first.bf16.kept_bytes) == (256, 128, 128)
    assert stack.outside.parts[0].fp32.kept_bytes == 4 * (128 + 10)  # with the outputs
    assert stack.tokens == 1
    assert found.network.traced_tokens is None


def test_repeated_blocks_are_one_kind_and_the_rest_is_outside():
    found = traced("stacked", shape=(32,))
    stack = found.network.main

    # the first keeps what came in, the others what tanh keeps anyway
    assert [(block.name, stack.count(kind)) for kind, block in enumerate(stack.blocks)] == [
        ("Linear", 1),
        ("Linear", 2),
    ]
    assert [block.parts[0].parameters for block in stack.blocks] == [32 * 32] * 2
    assert [block.parts[0].fp32.kept_bytes for block in stack.blocks] == [4 * 32, 0]
    assert stack.outside.parts[0].parameters == 32 * 5 + 5
    assert found.network.wrapped_class == "Linear"


def named() -> Any:
    module = Stacked(nn.ModuleList(nn.Linear(32, 32, bias=False) for _ in range(3)))
    return module, ("blocks", "head"), torch.zeros(2, 32), lambda own, given: own(given).square().mean()


def profiled() -> Any:
    module = nn.Linear(8, 8)
    batches = [torch.zeros(4, 8)]
    return module, torch.optim.SGD(module.parameters()), batches, lambda own, given: own(given).sum()


def test_blocks_may_be_named_and_the_function_may_be_that_of_a_profile():
    assert [block.name for block in traced("named").network.main.blocks] == ["Linear"] * 3  # 3 + head
    assert network_parameters(traced("profiled").network).total == 72


def test_convolutions_are_products_of_pixels_and_kernels():
    found = traced("unet")
    down, low, up, out = (block.parts[0] for block in found.network.main.blocks)

    assert down.products == (Product(rows=1024.0, inner=27.0, outer=8.0, channels=3),)
    assert low.products == (Product(rows=256.0, inner=72.0, outer=16.0, channels=8),)
    # each input pixel of a transposed convolution is spread over 2 x 2 outputs
    assert up.products == (Product(rows=256.0, inner=16.0, outer=32.0, channels=16),)
    assert out.products == (Product(rows=1024.0, inner=16.0, outer=2.0, channels=16),)
    assert sum(forward_flop(found.network, 1)) == found.flop
    # output for the norm and activation for the next, 8 channels each, and 3 channels that came in
    assert down.fp32.kept_bytes == pytest.approx(4 * 1024 * (2 * 8 + 3), rel=1e-2)


def test_fused_attention_is_one_kernel_for_each_sample():
    found = traced("encoder")
    block = found.network.main.blocks[0].parts[0]

    assert block.attended == (Attended(queries=32, keys=32, heads=4, head_dim=16, value_head_dim=16),)
    assert {each.grows for each in block.products} == {Grows.ROWS}
    # q, k, v, out and both maps of the feed-forward, and the scores both ways
    assert block.flop == 2 * 32 * 64 * (4 * 64 + 2 * 256) + 2 * 4 * 32 * 32 * 32


def test_submodules_keep_what_their_unit_keeps_in_deep_copies_too():
    found = traced("encoder")
    whole = [each.kept_bytes for each in found.modules if each.kind == "TransformerEncoderLayer"]
    blocks = [block.parts[0].fp32 for block in found.network.main.blocks]

    assert {each.kept_bytes for each in blocks} == set(whole)
    # weights live on in their own right
    assert [each.kept_once_bytes for each in blocks] == [0.0] * len(blocks)


def recurrent(kind: str, **sizes: Any) -> Callable[[], Any]:
    return lambda: (getattr(nn, kind)(8, 16, batch_first=True, **sizes), torch.zeros(2, 5, 8))


lstm, gru, rnn = recurrent("LSTM", num_layers=2), recurrent("GRU", bidirectional=True), recurrent("RNN")


@pytest.mark.parametrize(
    ("name", "flop"),
    [
        # 2 * 5 tokens * gates * 16 hidden * (input + hidden), each layer and direction
        ("lstm", 2 * 5 * 4 * 16 * ((8 + 16) + (16 + 16))),
        ("gru", 2 * 5 * 3 * 16 * (8 + 16) * 2),
        ("rnn", 2 * 5 * 1 * 16 * (8 + 16)),
    ],
)
def test_recurrent_layers_work_by_their_gates(name: str, flop: int):
    found = traced(name)

    assert (found.refused, found.flop, sum(forward_flop(found.network, 1))) == ({}, flop, flop)


class With(nn.Module):
    def __init__(self, module: Any, run: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.part, self.run = module, run

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return self.run(self.part, given)


def weights(*sizes: int) -> Any:
    return nn.ParameterList([nn.Parameter(torch.zeros(*sizes))])


def column() -> Any:
    return With(weights(8), lambda part, given: given @ part[0]), torch.zeros(2, 8)


def test_a_product_with_one_column_counts():
    assert traced("column").flop == 2 * 8


def placed() -> Any:
    def run(part: Any, given: Any) -> Any:
        wider = functional.interpolate(part[0], (12, 12), mode="bicubic").expand(len(given), -1, -1, -1)
        return (
            torch.cat([given, wider], 1) * part[0].softmax(-1).sum()
            + functional.layer_norm(given, (12, 12), part[1]).mean()
        )

    part = weights(1, 4, 6, 6).append(nn.Parameter(torch.zeros(12, 12)))
    return With(part, run), torch.zeros(2, 4, 12, 12)


def test_weights_that_are_placed_interpolated_and_normalised_are_no_products():
    assert traced("placed").flop == 0


def on_meta() -> Any:
    with torch.device("meta"):
        return mlp()


def test_a_module_of_the_meta_device_is_that_of_the_processor():
    assert traced("on_meta").network.stacks == traced("mlp").network.stacks


@pytest.mark.parametrize("name", ["mlp", "unet", "encoder"])
def test_modules_of_ones_own_are_planned_replicated_and_sharded(name: str):
    network = traced(name).network

    found = search(problem(network, 256), top=10)

    assert found.ranking is not None
    assert {found.ranking.plans[row].zero for row in range(len(found.ranking))} >= {0, 3}


# What cannot be planned


class Reading(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(4, 4)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return self.map(given) if given.sum().item() > 0 else given


class Similar(Reading):
    def forward(self, given: torch.Tensor) -> torch.Tensor:
        made = self.map(given)
        return made @ made.T


class Odd(Reading):
    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return self.map(given) if len(given) > 2 else self.map(self.map(given))


def reading() -> Any:
    return Reading(), torch.zeros(2, 4)


def similar() -> Any:
    return Similar(), torch.zeros(2, 4)


def odd() -> Any:
    return Odd(), torch.zeros(2, 4)


def raising() -> Any:
    raise ValueError("no such size")


def nothing() -> Any:
    return 3


def frozen() -> Any:
    return nn.Linear(4, 4).requires_grad_(False), torch.zeros(2, 4)


def lossless() -> Any:
    return nn.Linear(4, 4), torch.zeros(2, 4), lambda module, given: module(given)


def bilinear() -> Any:
    return With(nn.Bilinear(8, 8, 4), lambda part, given: part(given, given)), torch.zeros(2, 8)


def distant() -> Any:
    return With(weights(4, 8), lambda part, given: torch.cdist(given, part[0])), torch.zeros(2, 8)


def penalised() -> Any:
    def run(part: Any, given: Any) -> Any:
        given.requires_grad_()
        return torch.autograd.grad(part(given).sum(), given, create_graph=True)[0]

    return With(nn.Conv2d(4, 4, 3), run), torch.zeros(2, 4, 8, 8)


def on_two() -> Any:
    table = torch.zeros(8, device="meta")
    return With(nn.Linear(8, 8), lambda part, given: part(given) + table), torch.zeros(2, 8)


def lazy() -> Any:
    return nn.LazyLinear(8), torch.zeros(2, 8)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("bilinear", "part runs aten::_trilinear, which takes weights and has no formula for its FLOP; use"),
        ("distant", "runs aten::_cdist_forward, which takes weights and has no formula"),
        ("penalised", "runs aten::convolution_backward, whose products have sizes that are not known"),
        ("on_two", "makes tensors on several devices .* cpu and meta.*; make all of them without a device"),
        ("lazy", "the size of weight is not known before a first run; call the module once"),
        (
            "reading",
            r"run forward without data, raised DataDependent.*test_trace.py:\d+, in forward: .*item",
        ),
        ("similar", "flop of 2, 3 and 5 samples are 32, 72 and 200, which is no straight line"),
        ("odd", "flop of 2, 3 and 5 samples|2 products run with 2 samples and 1 with 3"),
        ("raising", r"raised ValueError: no such size \(.*test_trace.py:\d+, in raising"),
        ("nothing", "returned int; return a torch.nn.Module, or"),
        ("frozen", "20 of 20 parameters are frozen"),
        ("lossless", r"no loss to train with \(shape \(2, 4\)\)"),
        ("stacked", "returned a module alone; say what goes in"),
        ("absent", "unknown function 'absent'"),
        ("quiet", r"needs arguments \(_what\); name a function that needs none: return a torch.nn.Module"),
    ],
)
def test_what_cannot_be_traced_is_refused_in_one_line(name: str, said: str):
    with pytest.raises(InvalidInput, match=said) as refused:
        traced(name)

    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"tokens": 100}, "--seq 100: .*:mlp returns inputs of its own; leave it out"),
        ({"shape": (64,)}, "--shape: .*:mlp returns inputs of its own; leave it out"),
    ],
)
def test_sizes_beside_inputs_of_the_function_are_refused(sizes: dict[str, Any], said: str):
    with pytest.raises(InvalidInput, match=said):
        traced("mlp", **sizes)


def test_a_fault_of_the_person_is_theirs():
    with pytest.raises(UserFault):
        traced("raising")


@pytest.mark.parametrize("text", ["3,x", "0,4", "", "3,,4", "9" * 60])
def test_a_wrong_shape_is_refused(text: str):
    with pytest.raises(InvalidInput, match="is no shape of one sample; write for example 3,224,224"):
        shape_of(text)


# Models of transformers beside the formula

PLAIN = {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}
SIZES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": (
        "LlamaForCausalLM",
        {"hidden_size": 256, "intermediate_size": 688, "num_attention_heads": 8, "num_key_value_heads": 4},
    ),
    "gpt2": ("GPT2LMHeadModel", {"n_head": 4, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}),
    "bert": ("BertForMaskedLM", PLAIN),
    "vit": ("ViTForImageClassification", {"num_labels": 1000, **PLAIN}),
    "resnet": ("ResNetForImageClassification", {"num_labels": 1000}),
    "mixtral": (
        "MixtralForCausalLM",
        {
            "hidden_size": 256,
            "intermediate_size": 512,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "num_local_experts": 8,
        },
    ),
}
LAYERS = {
    "gpt2": {"n_layer": 2},
    "vit": {"num_hidden_layers": 4},
    "bert": {"num_hidden_layers": 4},
    "resnet": {"depths": [1, 1, 1, 1]},
}
TEXT = ("llama", "gpt2", "bert", "mixtral")
CONFIGS: dict[str, Any] = {}


def config_of(name: str) -> Any:
    import transformers

    made, sizes = SIZES[name]
    kind = getattr(transformers, made).config_class
    vocabulary = {"vocab_size": 8000, "bos_token_id": 0, "eos_token_id": 0} if name in TEXT else {}
    return kind(**sizes, **vocabulary, **LAYERS.get(name, {"num_hidden_layers": 2}))


def built(name: str) -> Callable[[], Any]:
    def make() -> Any:
        import transformers

        return getattr(transformers, SIZES[name][0])(config_of(name))

    return make


llama, gpt2, bert, vit, resnet, mixtral = (built(name) for name in SIZES)


@cache
def both(name: str) -> tuple["TracedModule", Network, dict[str, Any]]:
    """What was traced, and the network that the formulas make of the same configuration."""
    keys = json.loads(config_of(name).to_json_string(use_diff=False)) | {"architectures": [SIZES[name][0]]}
    found = traced(name, tokens=TOKENS) if name in TEXT else traced(name)
    return found, network_from_config(keys, name, name), keys


@pytest.mark.parametrize("name", SIZES)
def test_parameters_and_work_are_those_of_the_formula(name: str):
    found, described, _ = both(name)
    length = found.network.traced_tokens or 1

    assert network_parameters(found.network).total == network_parameters(described).total
    assert sum(forward_flop(found.network, length)) == pytest.approx(found.flop, rel=1e-12)
    assert found.flop == pytest.approx(sum(forward_flop(described, length)), rel=0.02)


REPLICATED = Plan(dp=8, micro_batch=8)
SHARDED = replace(REPLICATED, zero=3, shard=8, reshard=True)


@pytest.mark.parametrize(
    ("name", "plan", "error"),
    [
        *((name, SHARDED, 0.05) for name in SIZES),
        *((name, REPLICATED, 0.05) for name in ("llama", "bert", "vit", "resnet")),
        # the formula casts the input of query, key and value three times; GPT-2 has one map for all
        ("gpt2", REPLICATED, 0.07),
    ],
)
def test_kept_activations_are_those_of_the_formula(name: str, plan: Plan, error: float):
    found, described, keys = both(name)

    own, other = (
        estimate(each, Plans.of(plan)).memory.kinds
        for each in (problem(found.network), as_traced(problem(described), keys))
    )

    outside = found.network.main.outside.parts[0]
    seen = outside.bf16 if plan.zero else outside.autocast
    # the formula has the stem of a ResNet among the layers
    stem = seen.kept_bytes * plan.micro_batch if name == "resnet" else 0.0
    kept = float(own.activations_bytes[0]) + stem
    assert kept == pytest.approx(float(other.activations_bytes[0]), rel=error)


@pytest.mark.parametrize("name", ["llama", "bert", "mixtral"])
def test_recomputed_layers_keep_their_input(name: str):
    found, described, keys = both(name)
    plan = Plans.of(replace(SHARDED, recompute=Recompute.FULL))

    own, other = (
        float(estimate(each, plan).memory.kinds.activations_bytes[0])
        for each in (problem(found.network), as_traced(problem(described), keys))
    )

    assert own == other
