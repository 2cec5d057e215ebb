"""What the record of the engine says that it cannot do, and what the runtime refuses, are the same."""

from itertools import product

import pytest

torch = pytest.importorskip("torch")

from escala.catalog.clusters import cluster_for  # noqa: E402
from escala.catalog.engines import assumptions, engine  # noqa: E402
from escala.errors import InvalidInput  # noqa: E402
from escala.model.plan import Plans, Schedule  # noqa: E402
from escala.model.problem import Problem  # noqa: E402
from escala.model.rejects import Reject, rejects  # noqa: E402
from escala.model.workload import Workload  # noqa: E402
from escala.parallel.parts import parts_of  # noqa: E402
from escala.parallel.refusals import refuse_impossible  # noqa: E402
from parallel.models import TOKENS, model, network  # noqa: E402
from parallel.oracle import plan  # noqa: E402

pytestmark = pytest.mark.optional


def plans_of(tp, pp, cp, ep):
    """Replicas and every way to share their states, in fp32."""
    ranks, many = 4 * cp, {"schedule": Schedule.ONE_F_ONE_B} if pp > 1 else {}
    split = {"dp": 4, "tp": tp, "sp": tp > 1, "pp": pp, "cp": cp, "ep": ep, "micro_batches": 2, **many}
    yield plan(**split)
    yield plan(**split, zero=1, shard=ranks)
    yield plan(**split, zero=3, shard=ranks)
    yield plan(**split, zero=3, shard=ranks // 2)


def is_run(module, chosen):
    try:
        refuse_impossible(module, parts_of(module), chosen)
    except InvalidInput:
        return False
    return True


@pytest.mark.parametrize("only_planned", [{"cp": 2, "dynamic_cp": True}, {"wide_layers": 1}])
def test_what_is_only_planned_is_refused(only_planned):
    assert not is_run(model("llama"), plan(dp=2, **only_planned))


@pytest.mark.parametrize("ep", [1, 2])
def test_the_engine_lacks_what_the_runtime_refuses(ep):
    module, described = model("moe"), network(experts=8, has_qk_norm=True)
    for degrees in product((1, 2), (1, 2), (1, 2)):
        for chosen in plans_of(*degrees, ep):
            problem = Problem(
                workload=Workload(network=described, sequence_tokens=TOKENS, global_batch=8),
                cluster=cluster_for("h100-sxm", chosen.devices),
                engine=engine("pytorch"),
                assumptions=assumptions(),
            )
            is_lacking = bool(int(rejects(problem, Plans.of(chosen))[0]) & Reject.ENGINE)

            assert is_run(module, chosen) != is_lacking, chosen
