"""A step on one rank: what it learns from, what it skips, what passes leave for backward."""

import math

import pytest

torch = pytest.importorskip("torch")

from escala.errors import InvalidInput  # noqa: E402
from escala.model.plan import Compile, Offload, OptimizerStep, Precision, Recompute  # noqa: E402
from escala.model.workload import OptimizerKind  # noqa: E402
from escala.parallel.accumulate import split  # noqa: E402
from escala.parallel.batch import IGNORED  # noqa: E402
from escala.parallel.mesh import mesh_of  # noqa: E402
from escala.parallel.optimizers import optimizer_of  # noqa: E402
from escala.parallel.parallelize import parallelize  # noqa: E402
from escala.parallel.scaler import QUIET_STEPS, Scaler  # noqa: E402
from escala.parallel.step import Step, evaluate  # noqa: E402
from parallel.models import model  # noqa: E402
from parallel.oracle import batch, plan  # noqa: E402

pytestmark = pytest.mark.optional


def made(kind="llama", **fields):
    chosen = plan(**fields)
    return parallelize(model(kind), chosen, mesh_of(chosen, torch.device("cpu")))


def step_of(parallel, rate=1e-3, **choices):
    return Step(parallel, optimizer_of(parallel, rate=rate), **choices)


def test_the_loss_before_a_step_is_that_of_evaluation(alone):
    parallel, given = made(micro_batches=2), batch("llama", 8, 0, False)

    expected = evaluate(parallel, given)

    assert step_of(parallel)(given).loss == pytest.approx(expected, rel=1e-6)


def test_targets_are_counted_without_the_ignored_ones(alone):
    given = batch("llama", 8, 0, False)

    outcome = step_of(made())(given)

    assert outcome.targets == 8 * 16 - int((given.targets == IGNORED).sum())


def test_a_step_of_ignored_targets_alone_changes_nothing_but_the_decay(alone):
    given = batch("llama", 8, 0, False)
    given.targets.fill_(IGNORED)

    outcome = step_of(made())(given)

    assert outcome.loss == 0.0
    assert outcome.gradient_norm == 0.0


def test_clipping_does_not_change_the_norm_that_is_told(alone):
    given = batch("llama", 8, 0, False)

    whole, clipped = step_of(made())(given), step_of(made(), clip_norm=1e-3)(given)

    assert whole.gradient_norm == clipped.gradient_norm > 1e-3


def test_samples_that_micro_batches_do_not_divide_are_refused():
    with pytest.raises(InvalidInput, match="8 samples cannot be split into 3 micro-batches"):
        split(batch("llama", 8, 0, False), 3)


def test_an_overflow_in_fp16_skips_the_step_and_halves_the_factor(alone):
    parallel = made(precision=Precision.FP16)
    step = step_of(parallel)
    step.scaler.factor = 2.0**127  # the scaled loss is beyond fp32 already
    before = [each.detach().clone() for each in parallel.parameters()]

    outcome = step(batch("llama", 8, 0, False))

    assert outcome.is_skipped
    assert not math.isfinite(outcome.gradient_norm)
    assert step.scaler.factor == 2.0**126
    assert all(torch.equal(old, new) for old, new in zip(before, parallel.parameters(), strict=True))


def test_the_factor_doubles_after_quiet_steps_and_is_kept_in_a_checkpoint():
    scaler = Scaler(factor=8.0, quiet_steps=QUIET_STEPS - 1)

    assert not scaler.learn(1.0)
    again = Scaler()
    again.load_state_dict(scaler.state_dict())

    assert again == Scaler(factor=16.0, quiet_steps=0)


def test_on_one_rank_the_first_micro_batch_is_a_part_of_the_step(alone):
    given = batch("llama", 8, 0, False)
    given.targets.clamp_(min=0)  # parts with as many targets: the gradient of a part is that of its own loss
    first = step_of(made())(given.rows(0, 2))

    outcome = step_of(made(micro_batches=4), watches_parts=True)(given)

    assert outcome.parts == 4
    assert outcome.part_squared_norm == pytest.approx(first.gradient_norm**2, rel=1e-5)


@pytest.mark.parametrize(
    ("fields", "bytes_share"),
    [
        ({"recompute": Recompute.FIRST_LAYERS, "recompute_layers": 2}, (0.3, 0.8)),
        ({"recompute": Recompute.FULL}, (0.0, 0.3)),
        ({"offload_activations": Offload.CPU}, (0.0, 0.3)),
    ],
)
def test_blocks_keep_less_for_backward(alone, fields, bytes_share):
    def kept(parallel):
        stored = {}
        block = parallel.chunks[0].get_submodule("model.layers")

        def pack(tensor):
            stored[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
            return tensor

        hidden = torch.randn(8, 64, 32, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            for layer in block:
                hidden = layer(hidden, position_embeddings=None)
        weights = {each.untyped_storage()._cdata for each in block.parameters()}
        return sum(size for place, size in stored.items() if place not in weights)

    share = kept(made(**fields)) / kept(made())

    assert bytes_share[0] <= share <= bytes_share[1]


def test_selective_recompute_computes_no_product_again_and_full_all_of_them(alone):
    from torch.utils.flop_counter import FlopCounterMode

    def flop(**fields):
        parallel = made(**fields)
        with FlopCounterMode(display=False) as counter:
            step_of(parallel)(batch("llama", 8, 0, False))
        return counter.get_total_flops()

    # forward is a third of a block's work (1 of 1 + 2), and its last product is not needed for backward
    head, last = 3 * 2 * (8 * 16) * 32 * 96, 4 * 2 * (8 * 16) * 64 * 32
    blocks = flop() - head

    assert flop(recompute=Recompute.SELECTIVE) == flop()
    assert flop(recompute=Recompute.FULL) == head + blocks * 4 // 3 - last


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:.torch.jit:DeprecationWarning", "ignore:The .grad attribute"
)  # of torch's compiler
@pytest.mark.parametrize("recompute", [Recompute.NONE, Recompute.SELECTIVE])
def test_compiled_blocks_learn_as_eager_ones_do(alone, recompute, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    eager, compiled = made(), made(compile=Compile.DEFAULT, recompute=recompute)
    given = batch("llama", 8, 0, False)

    plain, other = (Step(each, optimizer_of(each, OptimizerKind.SGD, rate=0.1)) for each in (eager, compiled))
    losses = [(plain(given).loss, other(given).loss) for _ in range(2)]

    assert all(abs(left - right) < 5e-6 for left, right in losses)
    pairs = zip(eager.parameters(), compiled.parameters(), strict=True)
    assert max((left - right).abs().max().item() for left, right in pairs) < 5e-6


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"precision": Precision.MXFP8}, "precision mxfp8 is planned only"),
        ({"fused_loss": True}, "a fused loss is planned only"),
        ({"optimizer_step": OptimizerStep.TILED}, "set optimizer_step to whole"),
        ({"dp": 2, "shard": 2}, "without ZeRO shards nothing"),
        ({"dp": 4, "zero": 3, "shard": 3}, "does not divide dp x cp = 4"),
        ({"dp": 2, "tp": 2, "zero": 1, "shard": 2}, "ZeRO-1 deals whole parameters"),
        ({"dp": 2, "zero": 3, "shard": 2, "offload_params": Offload.NVME}, "offload to NVMe"),
        ({"dp": 2, "zero": 3, "shard": 2, "offload_params": Offload.CPU}, "offload both or neither"),
        ({"offload_params": Offload.CPU, "offload_optimizer": Offload.CPU}, "use zero=2 or 3"),
        ({"offload_activations": Offload.CPU, "recompute": Recompute.FULL}, "choose one of both"),
    ],
)
def test_what_cannot_be_run_is_refused_with_the_reason(fields, reason):
    from escala.parallel.parts import parts_of
    from escala.parallel.refusals import refuse_impossible

    module = model("llama")

    with pytest.raises(InvalidInput, match=reason):
        refuse_impossible(module, parts_of(module), plan(**fields))
