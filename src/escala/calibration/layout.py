"""From the columns of a row to the Plan that it ran. Wiring of degrees, batch and policies."""

import re
from dataclasses import dataclass
from typing import Any

from escala.calibration.degrees import Batch, batch, degrees, method_of
from escala.calibration.policies import offloads, precision, recompute, schedule, sharding
from escala.calibration.recipes import recipe, stage_layers
from escala.calibration.rows import Row
from escala.calibration.software import Software
from escala.model.cluster import Cluster
from escala.model.network import Network
from escala.model.plan import Compile, Dispatcher, Plan, Schedule, Split


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A plan, the batch it makes and the fields that had to be assumed for it."""

    plan: Plan
    batch: Batch
    imputed: tuple[str, ...]


def layout(row: Row, network: Network, cluster: Cluster, sw: Software) -> Layout:
    """The plan that a row ran."""
    method, layers = method_of(row), network.layers
    how = degrees(row, network, sw)
    amount = batch(row, how, sw)
    shared = sharding(row, how, sw, cluster)
    order, chunks, open_order = schedule(row, how, sw, layers)
    number, open_number = precision(row, sw)
    again, again_layers, open_again = recompute(row, sw, method, layers)
    if order is Schedule.INTERLEAVED and amount.times % how.pp:
        order, chunks = Schedule.ONE_F_ONE_B, 1
    dealt = stage_layers(row, how.pp * chunks)
    values: dict[str, Any] = offloads(row)
    plan = Plan(
        dp=how.dp,
        tp=how.tp,
        pp=how.pp,
        cp=how.cp,
        ep=how.ep,
        etp=how.etp,
        sp=row.sp if row.sp is not None else (sw.sp and how.tp > 1),
        zero=shared.zero,
        reshard=shared.reshard,
        shard=shared.shard,
        schedule=order,
        virtual_stages=chunks,
        split=Split.CUSTOM if dealt else Split.EVEN,
        stage_layers=dealt,
        micro_batch=amount.micro,
        micro_batches=amount.times,
        dispatcher=_dispatcher(row),
        recompute=again,
        recompute_layers=again_layers,
        precision=number,
        compile=_compile(row, sw),
        fused_loss=_fuses_loss(row, sw),
        **values,
    )
    return Layout(
        plan=plan, batch=amount, imputed=how.imputed + amount.imputed + open_order + open_number + open_again
    )


def _dispatcher(row: Row) -> Dispatcher:
    """As printed, else as in the recipe."""
    if "dispatcher" not in row.tags:
        return recipe(row).dispatcher
    is_fused = re.search(r"deepep|hybridep", row.tags["dispatcher"].lower())
    return Dispatcher.FUSED if is_fused else Dispatcher.ALL_TO_ALL


def _fuses_loss(row: Row, sw: Software) -> bool:
    """The torchtitan of 2025 compiles its loss; peaks of 2024 show whole copies of the logits."""
    return (
        sw.engine == "pytorch"
        and "torchtitan" in row.source
        and bool(row.compiled)
        and (row.year or 0) >= 2025
    )


def _compile(row: Row, sw: Software) -> Compile:
    if sw.compile is not Compile.OFF or not row.compiled or sw.batch_is_whole:
        return sw.compile
    return Compile.DEFAULT
