"""Peak reserved memory and throughput that torchtitan publishes for Llama 3.1."""

from typing import Any

import pytest

from escala.catalog.networks import network
from escala.model.estimate import estimate
from escala.model.plan import Compile, Plan, Plans, Precision, Schedule

GIB = 2.0**30
CLOSE = 0.08


@pytest.fixture
def predicted(asked, plan_of):
    """Reserved GiB and tokens/s of each device for one published row."""

    def one(row: dict[str, Any]) -> tuple[float, float]:
        degrees = {
            key: row[key]
            for key in ("dp", "tp", "pp", "cp", "virtual_stages", "micro_batch", "micro_batches")
        }
        pipeline = Schedule.INTERLEAVED if row["virtual_stages"] > 1 else Schedule.ONE_F_ONE_B
        plan = Plan(
            **degrees,
            sp=row["tp"] > 1,
            zero=3,
            reshard=row["pp"] == 1,
            shard=row["dp"] * row["cp"],
            schedule=pipeline if row["pp"] > 1 else Schedule.NONE,
            recompute=plan_of({"recompute": row["recompute"]}).recompute,
            compile=Compile(int(row["compile"])),
            precision=Precision.FP8_TENSORWISE if row["fp8"] else Precision.BF16,
            fused_loss=row.get("fused_loss", False),
        )
        problem = asked(
            network(row["network"]),
            plan,
            engine="pytorch",
            device=row["device"],
            sequence_tokens=row["sequence_tokens"],
        )
        found = estimate(problem, Plans.of(plan))
        tokens = problem.workload.global_batch * row["sequence_tokens"]
        reserved_gib = float(found.memory.reserved_bytes[0]) / GIB
        return reserved_gib, tokens / float(found.step_s[0]) / plan.devices

    return one


@pytest.mark.parametrize(("compiled", "reserved_gib"), [(False, 82.4), (True, 77.0)])
def test_llama_8b_on_8_h100_reserves_what_is_published(table, predicted, compiled, reserved_gib):
    rows = [
        row
        for row in table("torchtitan")["row"]
        if (row["devices"], row["sequence_tokens"], row["compile"], row["fp8"]) == (8, 8192, compiled, False)
    ]

    assert [row["reserved_gib"] for row in rows] == [reserved_gib]
    assert predicted(rows[0])[0] == pytest.approx(reserved_gib, rel=CLOSE)


def test_every_published_row_is_printed_beside_its_prediction(table, predicted):
    rows = table("torchtitan")["row"]

    print("\ntorchtitan: reserved GiB and tokens/s of a device, published and predicted")
    for row in rows:
        reserved_gib, tokens_per_s = predicted(row)
        words = f"{row['network']} x {row['devices']} tp {row['tp']} pp {row['pp']} cp {row['cp']}"
        words += f" seq {row['sequence_tokens']} {row['recompute']}"
        words += (" compile" if row["compile"] else "") + (" fp8" if row["fp8"] else "")
        memory = (
            f"{row['reserved_gib']:6.1f} {reserved_gib:6.1f} {reserved_gib / row['reserved_gib'] - 1:+6.1%}"
        )
        speed = (
            f"{row['tokens_per_s']:7.0f} {tokens_per_s:7.0f} {tokens_per_s / row['tokens_per_s'] - 1:+6.1%}"
        )
        print(f"  {words:66} {memory}   {speed}")

    assert len(rows) == 17
