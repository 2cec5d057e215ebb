"""Published results that follow from the formulas; docs/model/federated.md tells what does not."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from escala.catalog.devices import device_quantities, target_quantities
from escala.federated.cases import ONLY_MIDDLE
from escala.federated.costs import federated
from escala.federated.criteria import break_even_bytes
from escala.federated.levers import COHORT_POWER, EPOCHS_POWER
from escala.federated.phases import MESSAGE_OVERHEAD_BYTES
from escala.federated.ranges import exactly
from escala.federated.reading import find_scenario, scenario_from_keys
from escala.federated.scenario import Scenario


def one(cases: np.ndarray) -> float:
    return float(cases[0, 0])


def averaging(weights: int, rounds: int, samples: int, sample_bytes: int, **training: Any) -> Scenario:
    """FedAvg of McMahan et al. 2017: 100 clients, ten a round, fp32 both ways."""
    access = {"base": "wifi", "arrival": 1.0}
    return scenario_from_keys(
        {
            "model": {"weights": weights, "forward_flop_per_sample": "1 MFLOP"},
            "training": {"rounds": rounds, "clients_per_round": 10, **training},
            "clients": [
                {
                    "name": "all",
                    "count": 100,
                    "device": "phone",
                    "access": access,
                    "samples": samples,
                    "sample_size": f"{sample_bytes} B",
                }
            ],
        }
    )


@pytest.mark.parametrize(
    ("weights", "rounds", "samples", "sample_bytes", "factor"),
    [
        (1_663_370, 20, 600, 28 * 28, 57),  # MNIST CNN to 99 %: 20 * 10 * 2 * 6.65 MB = 2.66 GB of 47.0 MB
        (1_663_370, 173, 600, 28 * 28, 489),  # the same, non-IID
        (1_000_000, 280, 500, 32 * 32 * 3, 146),  # CIFAR-10 to 80 %: 22.4 GB of 153.6 MB
        (1_000_000, 2000, 500, 32 * 32 * 3, 1042),  # to 85 %
    ],
)
def test_published_runs_moved_so_many_times_their_data(
    weights: int, rounds: int, samples: int, sample_bytes: int, factor: int
):
    found = federated(averaging(weights, rounds, samples, sample_bytes), ONLY_MIDDLE)

    overhead_bytes = rounds * 10 * 2 * MESSAGE_OVERHEAD_BYTES
    payload_bytes = one(found.costs.traffic_bytes) - overhead_bytes
    assert round(payload_bytes / (100 * samples * sample_bytes)) == factor


def test_the_break_even_of_a_4_mb_model_is_224_mb_and_56_with_int8():
    plain = averaging(1_000_000, 280, 500, 3072)
    packed = averaging(1_000_000, 280, 500, 3072, codec_up="int8", codec_down="int8")

    # 280 * 0.1 * 2 * 4 MB; headers and overhead are 0.1 % and 0.5 % of a message
    for given, expected in ((plain, 224e6), (packed, 56e6)):
        found = one(break_even_bytes(given, federated(given, ONLY_MIDDLE)))
        assert found == pytest.approx(expected, rel=0.006)
        assert found > expected


def test_carbon_is_linear_in_rounds_times_cohort():
    # Yousefpour et al. 2023 (Green FL): linear with a high R²
    keyboard = find_scenario("phones-keyboard")
    product, carbon = [], []
    for cohort in (20, 100, 500):
        for rounds in (100, 500, 2000):
            training = replace(keyboard.training, clients_per_round=cohort, rounds=exactly(rounds))
            found = federated(replace(keyboard, training=training), ONLY_MIDDLE).costs.carbon_kg
            assert found is not None
            product.append(cohort * rounds)
            carbon.append(one(found))

    assert np.corrcoef(product, carbon)[0, 1] ** 2 > 0.999


def test_a_phone_takes_17_to_25_times_the_energy_of_a_gpu_for_a_flop():
    phone = target_quantities("phone-2019-high", "cpu")
    # 2.0 W * 0.301 s = 0.60 J a sample of 3 * 0.6 GFLOP
    phone_j = phone["power"].value * phone["sample.mobilenet-v2"].value / 1.8e9

    found = []
    for name in ("v100", "t4", "a100"):
        numbers = target_quantities(name, "gpu")
        board_w = numbers["power"].value + device_quantities(name)["idle"].value
        found.append(phone_j / (board_w * numbers["sample.resnet-50"].value / (3 * 8.2e9)))

    assert [int(each) for each in found] == [17, 21, 25]


def test_levers_of_cohort_and_epochs_are_the_published_rounds():
    # McMahan et al. 2017: table 1, 10 to 100 clients 206 to 97; table 2, E 1 to 5 350 to 229
    assert pytest.approx(97, abs=0.5) == 206 / 10**COHORT_POWER
    assert pytest.approx(229, abs=0.5) == 350 / 5**EPOCHS_POWER


def test_on_device_energies_are_those_of_the_tables():
    # time of a sample * power above idle: 0.0025, 0.29, 0.22, 0.36, 0.60 J, to two digits of the 2.0 W
    phone = target_quantities("phone-2019-high", "cpu")
    published = {
        "lenet": 0.0025,
        "alexnet": 0.29,
        "googlenet": 0.22,
        "squeezenet": 0.36,
        "mobilenet-v2": 0.60,
    }

    for name, joules in published.items():
        assert phone["power"].value * phone[f"sample.{name}"].value == pytest.approx(joules, rel=0.05)
