from dataclasses import replace

import pytest

from escala import cluster_for
from escala.errors import InvalidInput
from escala.measurement.bench.host import host_facts
from escala.measurement.bench.place import machine_differences, refuse_elsewhere, software_differences
from escala.model.cluster import Place

HERE = Place(fingerprint="0", processor=host_facts().processor, cores=host_facts().cores)


def test_this_machine_is_itself():
    assert machine_differences(HERE) == ()
    refuse_elsewhere(replace(cluster_for("h100-sxm", 8), place=HERE))


def test_a_cluster_that_nobody_measured_is_not_refused():
    refuse_elsewhere(cluster_for("h100-sxm", 8))


def test_another_processor_is_refused_for_what_runs_here():
    other = replace(HERE, processor="an abacus", cores=HERE.cores + 1)
    cluster = replace(cluster_for("h100-sxm", 8), place=other, source="mine.json, 2026-11-30")

    with pytest.raises(InvalidInput) as error:
        refuse_elsewhere(cluster)
    assert str(error.value).startswith(
        f"mine.json, 2026-11-30 is of another machine: measured on an abacus, here is {HERE.processor};"
    )
    assert str(error.value).endswith("measure this one with `escala bench`")


def test_another_version_is_said_and_not_refused():
    other = replace(HERE, software=(("msgspec", "0.0.1"), ("no-such-library", "1")))
    said = software_differences(other)

    assert said[0].startswith("timed with msgspec 0.0.1, here is ")
    assert said[1] == "timed with no-such-library 1, here is none"
    refuse_elsewhere(replace(cluster_for("h100-sxm", 8), place=other))
