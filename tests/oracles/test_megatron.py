"""Megatron-LM itself: its parser's options, and its validator's answer to what escala writes and finds."""

import os
from argparse import Namespace
from pathlib import Path
from unittest import mock

import pytest

from escala.foreign.documents import Syntax, parsed, read_documents
from escala.foreign.findings import Severity, rules
from escala.foreign.keys import table
from escala.foreign.megatron import writing
from escala.foreign.megatron.arguments import commands
from escala.foreign.orders import lacking
from escala.model.parameters import network_parameters
from oracles import megatron_keys
from oracles.keys import written
from oracles.needed import needed

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]
needed("megatron", "torch")
ARGUMENTS = megatron_keys.arguments()

from foreign.megatron.test_megatron_round_trip import OTHERS  # noqa: E402  # after the skip
from foreign.megatron.test_megatron_rules import BASE, CASES  # noqa: E402
from foreign.plans import ORDERS  # noqa: E402

VALID = Path(__file__).parents[1] / "foreign/valid"
LATER = ("megatron-expert-ranks", "megatron-interleaved-batch", "megatron-sequence")
"""Refused when process groups are made and at the first step, when the validator is done."""


def validated(argv: list[str], devices: int) -> Namespace:
    """Arguments that parser, validator, configuration and batch calculator have let pass, on H100."""
    from megatron.core.num_microbatches_calculator import ConstantNumMicroBatchesCalculator as Constant

    given = megatron_keys.parser().parse_args(argv)
    given.rank, given.world_size, given._is_global_batch_size_explicitly_specified = 1, devices, True
    is_sharded = given.use_megatron_fsdp or given.use_torch_fsdp2
    setting = {} if is_sharded else {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    with (
        mock.patch.object(ARGUMENTS, "get_device_arch_version", return_value=9),
        mock.patch.object(ARGUMENTS, "is_te_min_version", return_value=True),
        mock.patch("torch.cuda.get_device_capability", return_value=(9, 0)),
        mock.patch("megatron.core.utils.is_te_min_version", return_value=True),
        mock.patch.dict(os.environ, setting, clear=False),
    ):
        ARGUMENTS.validate_args(given)
        ARGUMENTS.core_transformer_config_from_args(given)
        ranks, micro, batch = given.data_parallel_size, given.micro_batch_size, given.global_batch_size
        Constant(batch, micro, ranks, given.decrease_batch_size_if_needed, 1)
    return given


def refusal(argv: list[str], devices: int = 8) -> str | None:
    """What Megatron says against arguments; None if nothing."""
    try:
        validated(argv, devices)
    except (AssertionError, ValueError, RuntimeError) as error:
        return str(error) or "refused"
    return None


def argv(options: str) -> list[str]:
    """The arguments of a test of rules, as they stand on the command line."""
    given = dict(BASE)
    for each in options.split(" --") if options else ():
        name, _, value = each.removeprefix("--").partition(" ")
        given.pop(name.removeprefix("-"), None)
        if not name.startswith("-"):
            given[name] = value
    return [word for name, value in given.items() for word in (f"--{name}", *value.split())]


@pytest.mark.parametrize("name", {**ORDERS, **OTHERS})
def test_every_script_that_is_written_starts(name: str) -> None:
    order = {**ORDERS, **OTHERS}[name]
    if lacking(writing.TARGET, order):
        pytest.skip("refused, with its reasons")
    [script] = writing.write(order)

    [(_, _, words)] = commands(parsed(script.text, "train.sh", Syntax.SHELL)[0])

    values = [*(word.text for word in words), "--no-rope-fusion"]  # Transformer Engine is not here
    assert refusal(values, order.plan.devices) is None


def test_the_table_of_options_is_what_the_parser_takes() -> None:
    assert written(megatron_keys.table()) == written(table("megatron"))


def test_a_sequence_has_two_chunks_for_each_rank_of_context() -> None:
    # 2 * 2 = 4; that TP divides the chunks is asked by the first scatter only
    given = "context-parallel-size 2 --tensor-model-parallel-size 4 --sequence-parallel --seq-length"

    assert [refusal(argv(f"{given} {tokens}")) is None for tokens in (24, 28, 30)] == [True, True, False]


@pytest.mark.parametrize("rule", [name for name in CASES if name not in LATER])
def test_the_validator_refuses_what_is_an_error_and_nothing_else(rule: str) -> None:
    broken, sound = CASES[rule]

    assert refusal(argv(sound)) is None
    assert (refusal(argv(broken)) is not None) == (rules()[rule].severity is Severity.ERROR)


@pytest.mark.parametrize("name", ["zero-1", "tp-pp-1f1b", "tp-pp-interleaved"])
def test_states_are_what_megatrons_own_estimate_says(name: str) -> None:
    from megatron.training.theoretical_memory_usage import compute_weight_and_optimizer_memory

    order = ORDERS[name]
    [script] = writing.write(order)
    [(_, _, words)] = commands(parsed(script.text, "train.sh", Syntax.SHELL)[0])
    plan = order.plan
    given = validated([*(word.text for word in words), "--no-rope-fusion"], plan.devices)
    given.padded_vocab_size = given.vocab_size

    theirs = compute_weight_and_optimizer_memory(given)

    # 6 + 12 / data parallel ranks bytes a parameter of the first stage: layers / PP, and one vocabulary
    network = order.problem.workload.network
    counted = network_parameters(network)
    body = (counted.total - counted.embedding - counted.head) / plan.pp
    ends = counted.embedding if plan.pp > 1 else counted.embedding + counted.head
    ours = (body + ends) / plan.tp * (6 + 12 / plan.dp)
    assert theirs == pytest.approx(ours, rel=2e-3)  # norms: each rank of TP has them whole


@pytest.mark.parametrize(
    ("name", "devices"), [("llama3_8b", 8), ("mixtral", 32), ("interleaved", 128), ("fsdp", 16)]
)
def test_scripts_that_are_called_valid_start(name: str, devices: int) -> None:
    [document] = read_documents(str(VALID / f"megatron-{name}.sh"))
    [(_, _, words)] = commands(document)

    kept = [word.text for word in words if word.text not in ("$@", "--moe-permute-fusion")]
    values = [*kept, "--no-rope-fusion"]  # Transformer Engine is not here

    assert refusal(values, devices) is None
