"""torchtitan 0.2.2, the last one with TOML: its keys."""

import warnings

import pytest

from escala.foreign.keys import table
from oracles.needed import needed

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of torch's own, while the tool is imported
    needed("torchtitan-toml", "torchtitan.config.job_config")


def test_the_table_of_keys_is_what_the_last_version_with_toml_has() -> None:
    from oracles import torchtitan_toml_keys

    assert torchtitan_toml_keys.table() == table("torchtitan-toml")
