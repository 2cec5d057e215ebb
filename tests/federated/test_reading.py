"""Scenario files: what they mean, and one line with file, table and key for each fault."""

import copy
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from escala.errors import InvalidInput
from escala.federated.ranges import Range
from escala.federated.reading import example_names, example_text, read_scenario, scenario_from_keys
from escala.federated.scenario import Movement, Scenario
from escala.federated.training import Part

CLIENT = {
    "name": "a",
    "count": 4,
    "device": "raspberry-pi-4",
    "access": "4g",
    "samples": 10,
    "sample_size": "1 kB",
}
MODEL = {"weights": 1000, "forward_flop_per_sample": "2 kFLOP"}


def keys(**changes: Any) -> dict[str, Any]:
    return {"model": MODEL, "training": {"rounds": 10}, "clients": [CLIENT], **changes}


def client(**changes: Any) -> dict[str, Any]:
    return keys(clients=[{**CLIENT, **changes}])


def fault(given: dict[str, Any]) -> str:
    with pytest.raises(InvalidInput) as caught:
        scenario_from_keys(given, "s.toml")
    return str(caught.value)


FAULTS = {
    "no model": ({"clients": [CLIENT]}, "s.toml: has no [model]; see `escala federate assess --example"),
    "unknown table": (keys(modell={}), "s.toml: unknown key 'modell': did you mean model?"),
    "unknown key": (client(cuont=3), "unknown key in [[clients]] 1: 'cuont': did you mean count or country?"),
    "schema": (keys(schema="escala/scenario@9"), "schema is 'escala/scenario@9'; this escala reads"),
    "other file": (keys(schema="escala/bench@1"), "s.toml is the measurement of a machine"),
    "no weights": (
        keys(model={"forward_flop_per_sample": "1 FLOP"}),
        "[model] weights is missing; give a number",
    ),
    "no unit": (
        keys(model={**MODEL, "forward_flop_per_sample": 5}),
        "is 5 without a unit; write for example",
    ),
    "wrong unit": (client(sample_size="3 W"), "sample_size is '3 W'; write for example '150 kB'"),
    "network": (
        keys(model={"network": "resnet-51"}),
        "[model] network: unknown network 'resnet-51': did you mean",
    ),
    "twice weights": (keys(model={"network": "resnet-50", "weights": 5}), "gives weights beside network"),
    "tokens": (
        keys(model={"network": "gpt2"}),
        "[model] sequence_tokens is missing; give a whole number from 1",
    ),
    "part": (
        keys(model={**MODEL, "part": "half"}),
        "unknown part 'half'; allowed are full, last-layers, lora",
    ),
    "lora rank": (keys(model={**MODEL, "lora_rank": 4}), "gives lora_rank, which part = 'full' does not use"),
    "too many trained": (
        keys(model={**MODEL, "part": "lora", "trained_weights": 5000}),
        "trained_weights 5,000 is above weights 1,000",
    ),
    "rounds": (keys(training={}), "[training] lacks rounds; give a number"),
    "two of three": (
        keys(training={"rounds": [1, 2]}),
        "rounds has 2 values; give one, or low, mid and high",
    ),
    "order": (keys(training={"rounds": [3, 2, 1]}), "rounds is not in the order low, mid, high"),
    "cohort": (
        keys(training={"rounds": 1, "clients_per_round": 5}),
        "clients_per_round is 5; give a whole number from 1 to 4",
    ),
    "buffer": (keys(training={"rounds": 1, "algorithm": "fedbuff"}), "algorithm 'fedbuff' needs buffer"),
    "codec": (
        keys(training={"rounds": 1, "codec_up": "zip"}),
        "codec_up: kind is 'zip'; allowed are none, fp16",
    ),
    "krum": (
        keys(training={"rounds": 1, "clients_per_round": 4, "robust": "krum", "attackers": 1}),
        "krum against 1 attackers needs 5 updates",
    ),
    "secure": (
        keys(training={"rounds": 1, "has_secure_aggregation": True}),
        "fewer than 3 updates lets each client compute",
    ),
    "gate": (keys(gate={"least_sample": 3}), "did you mean least_samples"),
    "share": (keys(gate={"most_missing_ratio": 2}), "most_missing_ratio"),
    "keep": (keys(training={"rounds": 1, "codec_up": "top-k"}), "codec_up: kind 'top-k' needs keep_ratio"),
    "no clients": (keys(clients=[]), "clients is an empty list; write at least one [[clients]] table"),
    "negative": (client(count=-1), "[[clients]] 1: count is -1; give a whole number from 1 to"),
    "true": (client(count=True), "count is true; give a whole number"),
    "same name": (keys(clients=[CLIENT, CLIENT]), "[[clients]] has the name 'a' twice"),
    "device": (
        client(device="raspberry-pi-9"),
        "unknown device 'raspberry-pi-9': did you mean raspberry-pi-5",
    ),
    "device table": (
        client(device={"rate": "1 GFLOP/s"}),
        "[[clients]] 1: device lacks power; write for example",
    ),
    "both": (client(device={"base": "t4", "bench": "b.json"}), "gives base and bench; keep one"),
    "access": (client(access="6g"), "unknown access '6g'"),
    "huge rate": (
        client(access={"base": "4g", "up": "1e300 Mb/s"}),
        "up is '1e300 Mb/s'; give a value above 0 (from 1e-30 to 1e+30 in base units)",
    ),
    "no power": (client(device={"base": "phone", "power": "0 W"}), "power is '0 W'; give a value above 0"),
    "zero rate": (client(access={"base": "4g", "up": "0 Mb/s"}), "up is '0 Mb/s'; give a value above 0"),
    "energy": (
        client(access={"base": "4g", "energy": "5 J"}),
        "energy is '5 J'; write for example '110 J/MB'",
    ),
    "hours": (client(hours="25-3"), "hours is '25-3'; write '22-6' (UTC"),
    "no hour": (client(hours=[]), "hours is an empty list"),
    "country": (client(country="Atlantis"), "[[clients]] 1: unknown country 'Atlantis'"),
    "carbon": (client(hourly_carbon_g_per_kwh=[1, 2]), "hourly_carbon_g_per_kwh is a list; give 24 numbers"),
    "region": (keys(rules={"movement": "within-region"}), "without region; list its countries"),
    "region alone": (keys(rules={"region": ["DE"]}), "region stands beside movement = 'yes'"),
    "deadline": (keys(rules={"deadline": 5}), "[rules] deadline is 5 without a unit"),
    "measure": (keys(rules={"decide_by": ["karma"]}), "unknown decide_by 'karma'; allowed are bytes, time"),
    "pue": (keys(central={"pue": 0.5}), "[central] pue is 0.5; give a number from 1 to 5"),
    "two pue": (keys(central={"pue": 1.5, "operator": "aws"}), "[central] gives pue and operator"),
    "no table": (keys(rules=3), "s.toml: rules is 3; it has to be a table"),
    "privacy": (
        keys(training={"rounds": 1, "privacy": {"place": "x", "noise_ratio": 1, "clip": 1, "delta": 1e-5}}),
        "place is 'x'; allowed are central, local",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_one_line_with_file_table_key_and_what_to_do(name: str):
    given, said = FAULTS[name]

    message = fault(given)

    assert said in message
    assert message.startswith("s.toml")
    assert "\n" not in message


@pytest.mark.parametrize("name", example_names())
def test_every_example_can_be_read(name: str, tmp_path: Path):
    file = tmp_path / "s.toml"
    file.write_text(example_text(name))

    assert isinstance(read_scenario(file), Scenario)


def test_an_unknown_example_is_refused_with_near_ones():
    with pytest.raises(InvalidInput, match="did you mean hospitals"):
        example_text("hospital")


def test_one_value_is_exact_and_three_are_low_mid_high():
    found = scenario_from_keys(keys(training={"rounds": [10, 20, 40]})).training.rounds
    one = scenario_from_keys(keys()).training.rounds

    assert (found, one) == (Range(low=10, mid=20, high=40), Range(low=10, mid=10, high=10))


def test_a_network_gives_weights_and_flop():
    learnt = scenario_from_keys(keys(model={"network": "gpt2", "sequence_tokens": 128})).learnt

    assert learnt.weights == learnt.trained_weights == 124_439_808
    # products: 2 * 128 tokens * (weights of matrices 85 M + head 38.6 M), attention on top
    assert learnt.forward_flop_per_sample == pytest.approx(2 * 128 * (84_934_656 + 38_597_376), rel=0.05)


def test_lora_trains_rank_times_inputs_and_outputs():
    model = {"network": "llama-3.1-8b", "sequence_tokens": 128, "part": "lora", "lora_rank": 8}

    found = scenario_from_keys(keys(model=model))

    # 32 layers; q and o 4096 + 4096, k and v 4096 + 1024, gate, up and down 4096 + 14336
    assert found.learnt.trained_weights == 8 * 32 * (2 * 8192 + 2 * 5120 + 3 * 18432)
    assert found.training.part is Part.LORA


def test_last_layers_are_the_head_and_so_many_layers():
    head = scenario_from_keys(keys(model={"network": "resnet-50", "part": "last-layers"}))

    # 2,048 * 1,000 + 1,000 biases
    assert head.learnt.trained_weights == 2_049_000


def test_a_class_may_change_any_number_of_its_device_and_access():
    given = client(
        device={"base": "raspberry-pi-4", "power": ["2 W", "3 W", "5 W"], "memory": "8 GB"},
        access={"base": "4g", "up": "1 Mb/s", "price_usd_per_gb": 4},
    )

    found = scenario_from_keys(given).clients[0]

    assert found.device.targets[0].power_w == Range(low=2, mid=3, high=5)
    assert found.device.memory_bytes == 8e9
    assert found.device.targets[0].flop_per_s.mid == 6e9
    assert found.access.up_bytes_per_s == Range(low=125_000, mid=125_000, high=125_000)
    assert found.access.price_usd_per_byte == 4e-9


def test_a_device_that_was_timed_on_the_model_has_its_time():
    model = {**MODEL, "name": "MobileNetV2"}

    found = scenario_from_keys(client(device="phone-2019-high") | {"model": model}).clients[0].device

    assert found.targets[0].sample_s == Range(low=283 * 1e-3, mid=301 * 1e-3, high=301 * 1e-3)


def test_a_bench_file_is_a_device_with_the_power_that_the_user_says():
    bench = str(Path(__file__).parents[1] / "formats" / "data" / "bench.json")
    found = (
        scenario_from_keys(client(device={"bench": bench, "power": "15 W", "idle": "5 W"})).clients[0].device
    )

    assert found.targets[0].power_w.mid == 15
    assert found.targets[0].flop_per_s.high > found.targets[0].flop_per_s.mid > 1e9
    assert "a bench does not measure it" in fault(client(device={"bench": bench}))


def test_hours_run_over_midnight():
    assert scenario_from_keys(client(hours="22-2")).clients[0].hours == (0, 1, 22, 23)
    assert scenario_from_keys(client()).clients[0].hours == tuple(range(24))


def test_what_was_not_said_is_told():
    found = scenario_from_keys(keys())

    assert found.rules.movement is Movement.FREE
    assert any("one a100" in each for each in found.assumed)
    assert any("rates of 4g are assumptions" in each for each in found.assumed)


def test_yaml_and_json_hold_the_same_keys(tmp_path: Path):
    import json

    import yaml

    for name, text in (("s.json", json.dumps(keys(name="x"))), ("s.yaml", yaml.safe_dump(keys(name="x")))):
        (tmp_path / name).write_text(text)

    assert read_scenario(tmp_path / "s.json") == read_scenario(tmp_path / "s.yaml")


def places(found: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, value in found.items() if isinstance(found, dict) else enumerate(found):
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


@pytest.mark.parametrize("wrong", [None, -1, 1e400, {}, "é\n"], ids=repr)
def test_whatever_stands_at_whatever_key_is_read_or_refused_in_one_line(wrong: Any):
    whole, said = tomllib.loads(example_text("vehicles")), []
    for *inside, key in places(whole):
        changed = copy.deepcopy(whole)
        table: Any = changed
        for each in inside:
            table = table[each]
        table[key] = wrong
        try:
            scenario_from_keys(changed, "s.toml")
        except InvalidInput as error:
            said.append(str(error))

    assert len(said) > 50
    assert [each for each in said if "\n" in each or not each.startswith("s.toml")] == []


def test_what_multiplies_the_power_of_the_centre_is_named_where_it_was_not_given():
    plain = tomllib.loads(example_text("hospitals"))
    given = {**plain, "central": {**plain["central"], "node_power_ratio": 1.3, "pue": 1.2}}
    default = {key: each for key, each in plain["central"].items() if key not in ("pue", "operator")}

    named = scenario_from_keys({**plain, "central": default}).assumed
    silent = scenario_from_keys(given).assumed

    assert any("1.5 times what its devices do" in each for each in named)
    assert any("PUE 1.5" in each for each in named)
    assert not any("node_power_ratio" in each or "PUE" in each for each in silent)


def test_a_power_that_nobody_knows_is_named():
    plain = tomllib.loads(example_text("hospitals"))
    dark = [{**each, "device": "tpu-v5p"} for each in plain["clients"]]

    said = scenario_from_keys({**plain, "clients": dark, "central": {"device": "tpu-v5p"}}).assumed

    assert sum("counts 0 W" in each for each in said) == len(dark) + 1
