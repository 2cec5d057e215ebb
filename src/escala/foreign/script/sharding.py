"""FSDP in a script: how the model gets there, what is wrapped, how states are gathered to be saved."""

import ast
from collections.abc import Iterator
from typing import Final

from escala.foreign.findings import Finding, finding
from escala.foreign.jobs import Job
from escala.foreign.script.code import is_open, keyword, texts, words
from escala.foreign.script.parts import Program

GATHERING: Final = frozenset(("state_dict_type", "set_state_dict_type", "summon_full_params"))
"""Names by which a program says how states are gathered."""
POLICIES: Final = ("transformer_auto_wrap_policy", "size_based_auto_wrap_policy")


def sharding_rules(job: Job, program: Program) -> Iterator[Finding]:
    """What is wrong with FSDP."""
    yield from _policies(program)
    if not (program.fsdp1 or program.fsdp2):
        return
    yield from _loaded(job, program)
    yield from _device(program)
    yield from _whole_states(program)
    yield from _plain_states(program)


def _policies(program: Program) -> Iterator[Finding]:
    """Policies that are called where they should be handed over."""
    for call in program.called(*POLICIES):
        if len(call.args) < 3 and not is_open(call) and keyword(call, "module") is None:
            name = program.dotted(call.func).rpartition(".")[2]
            yield finding("script-policy-called", program.place(call), given=name)


def _loaded(job: Job, program: Program) -> Iterator[Finding]:
    """The whole model in the memory of every rank before it is sharded."""
    for call in program.called("from_pretrained"):
        if (
            "Model" not in program.dotted(call.func)
            or program.is_on_one_rank(call)
            or _is_meta(program, call)
        ):
            continue
        ranks = job.count("devices_per_node")
        if ranks is None or ranks > 1:
            who = "every rank" if ranks is None else f"each of {ranks} ranks"
            times = "as many times as a node has ranks" if ranks is None else f"{ranks} times"
            yield finding("script-every-rank-loads", program.place(call), who=who, times=times)


def _is_meta(program: Program, call: ast.Call) -> bool:
    """Whether it is made without memory: under torch.device("meta"), or told so."""
    if "meta" in texts(call):
        return True
    managers = [each for each in program.around(call) if isinstance(each, ast.With)]
    return any(
        "meta" in texts(item.context_expr) or "init_empty_weights" in ast.dump(item.context_expr)
        for each in managers
        for item in each.items
    )


def _device(program: Program) -> Iterator[Finding]:
    """The current device, where nothing says that it differs from rank to rank."""
    text = program.document.text
    for call in program.fsdp1:
        given = keyword(call, "device_id")
        is_current = given is not None and program.dotted(getattr(given, "func", given)).endswith(
            "current_device"
        )
        if is_current and "set_device" not in text and "CUDA_VISIBLE_DEVICES" not in text:
            yield finding("script-device-before-set", program.place(given or call))


def _whole_states(program: Program) -> Iterator[Finding]:
    """Whole states that every rank gathers on its device."""
    for call in program.called("state_dict_type", "set_state_dict_type"):
        about = ast.dump(call)
        if "FULL_STATE_DICT" in about and keyword(call, "state_dict_config", 2) is None:
            yield finding("script-whole-states", program.place(call))


def _plain_states(program: Program) -> Iterator[Finding]:
    """state_dict() of a model in the first FSDP: all ranks have to call it, and it gathers everything."""
    if program.attributes & GATHERING or "SHARDED_STATE_DICT" in program.document.text:
        return
    wrapped = {
        name
        for call in program.fsdp1
        if isinstance(assigned := program.parents.get(call), ast.Assign)
        for target in assigned.targets
        for name in words(target)
    }
    for call in program.called("state_dict"):
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if not isinstance(owner, ast.Name) or owner.id not in wrapped:
            continue
        on_one = program.is_on_one_rank(call)
        yield finding("script-states-on-one-rank" if on_one else "script-whole-states", program.place(call))
