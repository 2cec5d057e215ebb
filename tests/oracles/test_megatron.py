"""Megatron-LM itself: its parser's options, and its validator's answer to what escala writes and finds."""

import os
from unittest import mock

import pytest

from escala.foreign.findings import Severity, rules
from escala.foreign.keys import table
from oracles import megatron_keys
from oracles.keys import written
from oracles.needed import needed

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]
needed("megatron", "torch")
ARGUMENTS = megatron_keys.arguments()

from foreign.megatron.test_megatron_rules import BASE, CASES  # noqa: E402  # after the skip

LATER = ("megatron-expert-ranks", "megatron-interleaved-batch")
"""Refused when process groups are made and at the first step, where the validator is done."""


def refusal(argv: list[str], devices: int = 8) -> str | None:
    """What parser, validator, configuration and batch calculator say against arguments; None if nothing."""
    from megatron.core.num_microbatches_calculator import ConstantNumMicroBatchesCalculator as Constant
    from megatron.core.num_microbatches_calculator import RampupBatchsizeNumMicroBatchesCalculator as Ramp

    given = megatron_keys.parser().parse_args(argv)
    given.rank, given.world_size, given._is_global_batch_size_explicitly_specified = 1, devices, True
    is_sharded = given.use_megatron_fsdp or given.use_torch_fsdp2
    setting = {} if is_sharded else {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    with (
        mock.patch.object(ARGUMENTS, "get_device_arch_version", return_value=9),
        mock.patch("torch.cuda.get_device_capability", return_value=(9, 0)),
        mock.patch("megatron.core.utils.is_te_min_version", return_value=True),
        mock.patch.dict(os.environ, setting, clear=False),
    ):
        try:
            ARGUMENTS.validate_args(given)
            ARGUMENTS.core_transformer_config_from_args(given)
            ranks, micro, batch = given.data_parallel_size, given.micro_batch_size, given.global_batch_size
            if given.rampup_batch_size is None:
                Constant(batch, micro, ranks, given.decrease_batch_size_if_needed, 1)
            else:
                Ramp(batch, micro, ranks, given.decrease_batch_size_if_needed, 1, *given.rampup_batch_size)
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


def test_the_table_of_options_is_what_the_parser_takes() -> None:
    assert written(megatron_keys.table()) == written(table("megatron"))


@pytest.mark.parametrize("rule", [name for name in CASES if name not in LATER])
def test_the_validator_refuses_what_is_an_error_and_nothing_else(rule: str) -> None:
    broken, sound = CASES[rule]

    assert refusal(argv(sound)) is None
    assert (refusal(argv(broken)) is not None) == (rules()[rule].severity is Severity.ERROR)
