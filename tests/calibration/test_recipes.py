"""Recipes of mixtures of experts: which release switched on what, and what the reading makes of it."""

from dataclasses import replace

import pytest

from escala.calibration import Reading, read, read_rows
from escala.calibration.recipes import RECIPES, Graphs, recipe
from escala.catalog.engines import assumptions, engine
from escala.model.plan import Dispatcher, Split

ROWS = {row.id: row for row in read_rows().rows}


def reading(name: str) -> Reading:
    found = read(ROWS[name])
    assert isinstance(found, Reading), found
    return found


@pytest.mark.parametrize(
    ("name", "dispatcher", "graphs", "overlaps"),
    [
        ("mbridge_052", Dispatcher.FUSED, Graphs.WHOLE, True),  # Qwen3 235B, GB200, MXFP8, 26.06
        ("mbridge_149", Dispatcher.FUSED, Graphs.PARTS, False),  # the same layout in 26.04
        ("mbridge_106", Dispatcher.ALL_TO_ALL, Graphs.NONE, True),  # Qwen3 235B, H100
        ("mbridge_105", Dispatcher.ALL_TO_ALL, Graphs.NONE, False),  # Qwen3 235B, B200
        ("mbridge_088", Dispatcher.FUSED, Graphs.NONE, False),  # DeepSeek-V3, GB300, 26.04
        ("mbridge_041", Dispatcher.FUSED, Graphs.WHOLE, True),  # DeepSeek-V3, GB300, 26.06
        ("mbridge_093", Dispatcher.ALL_TO_ALL, Graphs.NONE, False),  # GPT-OSS, GB200, bf16
        ("mbridge_092", Dispatcher.ALL_TO_ALL, Graphs.PARTS, False),  # GPT-OSS, GB300, bf16
        ("extra_350", Dispatcher.FUSED, None, True),  # printed: DeepEP, ep_overlap=on
    ],
)
def test_a_release_runs_what_its_recipe_says(name, dispatcher, graphs, overlaps):
    found = reading(name)

    assert (found.plan.dispatcher, found.traits.graphs, found.traits.overlaps_experts) == (
        dispatcher,
        graphs,
        overlaps,
    )


def test_graphs_take_launches_away():
    known = engine("megatron-bridge")

    plain, parts, whole = (
        replace(reading("mbridge_149").traits, graphs=graphs).on(known).time
        for graphs in (Graphs.NONE, Graphs.PARTS, Graphs.WHOLE)
    )

    # 3.5 dense layers without, 1.5 with graphs of attention, router and preprocessing, as the record has
    assert plain.moe_dispatch_ratio == pytest.approx(known.time.moe_dispatch_ratio * 3.5 / 1.5, rel=1e-12)
    assert parts.moe_dispatch_ratio == pytest.approx(known.time.moe_dispatch_ratio, rel=1e-12)
    assert whole.dispatch_s == 0.0


def test_a_fixed_capacity_needs_no_counts():
    # 2 of the 3.5 dense layers are left; the record of Megatron-Core has all of them
    known, grok = engine("megatron-core").time, reading("dgxc_009").problem.engine.time

    assert grok.moe_dispatch_ratio == pytest.approx(known.moe_dispatch_ratio * 2.0 / 3.5, rel=1e-12)


def test_layers_are_dealt_as_the_recipe_says():
    # 16 stages: four layers each, one beside the layer that predicts the next token and the head
    plan = reading("mbridge_041").plan

    assert plan.split is Split.CUSTOM
    assert plan.stage_layers == (4,) * 15 + (1,)


def test_all_layers_are_dealt():
    found = [read(row) for row in ROWS.values() if recipe(row).stages]

    assert {sum(each.plan.stage_layers) for each in found if isinstance(each, Reading)} == {61}


@pytest.mark.parametrize(
    ("name", "skew"),
    [
        ("mbridge_052", 0.0),  # notes: forced-balanced routing
        ("dgxc_009", 0.0),  # NeMo's recipe of Grok-1 drops tokens beyond a capacity of 1
        ("tpurecipes_042", None),  # nothing said
    ],
)
def test_forced_balance_leaves_the_noise_of_sampling_alone(name, skew):
    usual, known = assumptions(), reading(name).problem.assumptions

    assert known.expert_skew == (usual.expert_skew if skew is None else skew)
    assert known.expert_skew_high == (usual.expert_skew_high if skew is None else skew)
    assert usual.expert_skew > 0.0


def test_every_recipe_is_that_of_some_row():
    used = {id(recipe(row)) for row in ROWS.values()}

    assert [each.pattern for each in RECIPES if id(each) not in used] == []
