"""The public names of the package."""

import subprocess
import sys

import pytest

import escala
from escala import _HOMES


@pytest.mark.parametrize("name", escala.__all__)
def test_every_public_name_loads(name):
    if name == "prepare":
        pytest.importorskip("torch")  # the one name that needs it

    assert getattr(escala, name).__name__ == name


def test_the_list_of_names_and_of_homes_are_one():
    assert sorted(_HOMES) == sorted(escala.__all__) == escala.__all__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'plann'"):
        _ = escala.plann


def test_importing_the_package_loads_no_numpy():
    code = "import sys, escala; print('numpy' in sys.modules)"

    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert answer.stdout.strip() == "False"


def test_the_example_of_the_docstring_runs():
    problem, assumed = escala.answerable(
        escala.Question(
            network=escala.find_network("llama-3.1-8b"),
            cluster=escala.cluster_for("h100-sxm", 8),
            sequence_tokens=8192,
        )
    )

    found = escala.search(problem)

    assert [each.name for each in assumed] == ["global batch"]
    assert found.ranking is not None
