"""The list of tests that run alone names files and folders that are there."""

from conftest import ALONE, HERE


def test_every_place_of_the_list_exists():
    assert [place for place in ALONE if not (HERE / place).exists()] == []
