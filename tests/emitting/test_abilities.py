"""The space that abilities narrow the search to is what the same abilities say that a target can express."""

from hypothesis import given, settings
from hypothesis import strategies as st

from escala.emitting.abilities import Narrowed, keeping, narrowed
from escala.foreign.orders import ANY, Abilities, Order, Target, lacking
from escala.model.plan import PLACEMENTS, Compile, ContextKind, Plan, Plans, Precision, Recompute, Schedule
from escala.model.rejects import Reject, rejects
from foreign.plans import ORDERS


def some(*values: object) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(st.sampled_from(values), min_size=1, unique=True).map(tuple)


DEGREES = st.sampled_from((1, 2, 4, 8, ANY))
ABILITIES = st.builds(
    Abilities,
    zero=some(0, 1, 2, 3),
    no_reshard=st.booleans(),
    hybrid=st.booleans(),
    tp=DEGREES,
    sp=some(False, True),
    pp=DEGREES,
    schedules=some(*(each for each in Schedule if each)),
    cp=DEGREES,
    cp_kinds=some(*ContextKind),
    ep=DEGREES,
    etp=DEGREES,
    recompute=some(*Recompute),
    precisions=some(Precision.BF16, Precision.FP8_TENSORWISE),
    compiles=some(Compile.OFF, Compile.DEFAULT),
    fused_loss=st.booleans(),
)
TRAINED = {name: order for name, order in ORDERS.items() if name not in ("lora", "qlora", "zero-3-offload")}


def holds(space: Narrowed, order: Order) -> bool:
    """Whether a plan lies in a part of the space."""
    problem, plan = space.problem(order.problem), order.plan
    is_inside = any(all(code(plan, name) in values for name, values in each) for each in space.slices)
    lacked = int(rejects(problem, Plans.of(plan))[0]) & ~int(rejects(order.problem, Plans.of(plan))[0])
    return is_inside and not lacked & Reject.ENGINE and space.precision is plan.precision


def code(plan: Plan, name: str) -> int:
    return PLACEMENTS.index(plan.placement) if name == "placement" else int(getattr(plan, name))


def target(able: Abilities) -> Target:
    return Target(name="some", title="Some", version="1", abilities=able, launch="run", page="some")


@given(able=ABILITIES, name=st.sampled_from(sorted(TRAINED)))
@settings(max_examples=300)
def test_a_plan_is_in_the_space_if_nothing_is_lacking(able: Abilities, name: str) -> None:
    order = TRAINED[name]
    space = narrowed(able, order)

    is_expressed = lacking(target(able), order) == []
    assert (space is not None and holds(space, order)) == is_expressed
    if is_expressed and space is not None:
        assert holds(keeping(space, able, order.plan), order)


def test_a_part_that_keeps_a_plan_has_no_other_degree() -> None:
    order = TRAINED["fsdp-tp-sp"]
    able = Abilities(zero=(0, 3), tp=ANY, sp=(True,), recompute=(Recompute.FULL,), compiles=tuple(Compile))
    space = narrowed(able, order)
    assert space is not None

    kept = dict(keeping(space, able, order.plan).slices[0])

    assert (kept["tp"], kept["sp"], kept["recompute"]) == ((8,), (1,), (int(Recompute.FULL),))


def test_no_number_format_leaves_no_space() -> None:
    able = Abilities(precisions=(Precision.NVFP4,))

    assert narrowed(able, ORDERS["ddp"]) is None
