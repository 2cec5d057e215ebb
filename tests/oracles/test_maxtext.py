"""MaxText's own classes and base.yml beside the table of its settings, and the models that it knows."""

import pytest
import yaml

from escala.foreign.keys import table
from escala.foreign.maxtext import writing
from escala.foreign.maxtext.names import AXES, LEVELS, MODELS
from escala.foreign.orders import lacking
from foreign.plans import ORDERS
from oracles import maxtext_keys
from oracles.keys import written

pytestmark = pytest.mark.oracle
FOLDER = maxtext_keys.folder()


def test_the_table_of_settings_is_what_the_classes_have() -> None:
    assert written(maxtext_keys.table()) == written(table("maxtext"))


def test_the_axes_are_those_of_base_yml() -> None:
    wanted = {
        name for name in maxtext_keys.base() if name.endswith("_parallelism") and name[:4] in ("ici_", "dcn_")
    }

    assert {f"{level}_{axis}_parallelism" for level in LEVELS for axis in AXES} == wanted


def test_every_model_has_a_file() -> None:
    assert set(MODELS) <= maxtext_keys.models()


@pytest.mark.parametrize("name", ORDERS)
def test_every_setting_that_is_written_is_one_of_its_own(name: str) -> None:
    if lacking(writing.TARGET, ORDERS[name]):
        pytest.skip("refused, with its reasons")
    [file] = writing.write(ORDERS[name])

    settings = yaml.safe_load(file.text)

    assert settings.pop("base_config") == "base.yml"
    assert set(settings) <= set(maxtext_keys.table().sections[""].keys)
