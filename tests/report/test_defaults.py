"""What is assumed where nothing is given; in tests of the report, since it is what people see first."""

import pytest

from escala.catalog import cluster_for
from escala.catalog.networks import network
from escala.errors import InvalidInput
from escala.planning.defaults import Place, Question, answerable, at_site, default_batch


@pytest.mark.parametrize(
    ("sequence_tokens", "devices", "batch"),
    [
        (8192, 8, 128),  # 1 M / 8192 = 122: 8 replicas, 16 sequences each
        (8192, 1, 128),
        (2048, 1024, 1024),  # a sequence for each device, 2 M tokens
        (8192, 7, 112),  # 7 replicas, 16 each
        (8192, 1009, 1009),  # a prime: nothing but data parallelism divides it
        (8192, 16384, 2048),  # 16 M / 8192 = 1953: 1024 replicas of 16 devices, 2 each
    ],
)
def test_default_batch_by_hand(sequence_tokens: int, devices: int, batch: int):
    assert default_batch(sequence_tokens, devices) == batch


@pytest.mark.parametrize("devices", [1, 2, 3, 6, 7, 12, 97, 1000, 1009, 4096, 999_983])
def test_default_batch_can_be_dealt_to_the_devices(devices: int):
    batch = default_batch(4096, devices)

    assert any(
        devices % replicas == 0 and devices // replicas <= 16
        for replicas in range(1, batch + 1)
        if batch % replicas == 0
    )


def test_sequence_is_the_context_of_the_network_up_to_8192():
    problem, assumed = answerable(
        Question(network=network("llama-3.1-8b"), cluster=cluster_for("h100-sxm", 8))
    )

    assert problem.workload.sequence_tokens == 8192
    assert [each.option for each in assumed] == ["--seq", "--global-batch"]


def test_image_networks_need_no_sequence():
    problem, assumed = answerable(Question(network=network("resnet-50"), cluster=cluster_for("h100-sxm", 8)))

    assert problem.workload.global_batch == 1024
    assert [each.name for each in assumed] == ["global batch"]


@pytest.mark.parametrize("length", [None, 1, network("resnet-50").main.tokens])
def test_a_length_that_contradicts_no_image_is_taken(length: int | None):
    asked = Question(network=network("resnet-50"), cluster=cluster_for("h100-sxm", 8), sequence_tokens=length)

    assert answerable(asked)[0].workload.sequence_tokens == network("resnet-50").main.tokens


def test_a_device_without_the_unit_is_refused_with_those_it_has():
    with pytest.raises(InvalidInput, match="t4 has no unit for bf16; give --precision fp16 or fp32"):
        answerable(Question(network=network("bert-base"), cluster=cluster_for("t4", 1)))


def test_what_is_not_said_of_the_place_stays():
    machines = cluster_for("h100-sxm", 8)

    assert at_site(machines, Place()) == machines
    assert at_site(machines, Place(pue=1.3)).site.pue == 1.3
    assert at_site(machines, Place(price_usd=2.0, price_date="2026-11-30")).site.price_date == "2026-11-30"


def test_a_sequence_beyond_the_context_of_the_network_is_said():
    question = Question(network=network("gpt2"), cluster=cluster_for("h100-sxm", 1), sequence_tokens=4096)

    _, assumed = answerable(question)

    assert assumed[0].reason == "the network's own context is 1,024"


@pytest.mark.parametrize(("devices", "batch"), [(1, 64), (4, 64), (7, 56), (64, 64), (256, 256)])
def test_fine_tuning_takes_64_short_sequences_or_one_for_each_device(devices: int, batch: int):
    problem, assumed = answerable(
        Question(network=network("llama-3.1-8b"), cluster=cluster_for("h100-sxm", devices), method="lora")
    )

    assert (problem.workload.global_batch, problem.workload.sequence_tokens) == (batch, 2048)
    assert {"sequence", "global batch"} <= {each.name for each in assumed}


@pytest.mark.parametrize(
    ("devices", "words"), [(64, "one million"), (2048, "for each device"), (65536, "every 16")]
)
def test_the_reason_of_the_batch_agrees_with_it(devices: int, words: str):
    _, assumed = answerable(
        Question(network=network("llama-3.1-8b"), cluster=cluster_for("h100-sxm", devices))
    )

    assert words in next(each.reason for each in assumed if each.name == "global batch")
