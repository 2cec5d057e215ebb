"""Megatron-LM itself: its parser's options, and its validator's answer to what escala writes and finds."""

import os
from unittest import mock

import pytest

from escala.foreign.keys import table
from oracles import megatron_keys
from oracles.keys import written
from oracles.needed import needed

pytestmark = pytest.mark.oracle
needed("megatron", "torch")
needed("megatron", "einops")
ARGUMENTS = megatron_keys.arguments()


def test_the_table_of_options_is_what_the_parser_takes() -> None:
    assert written(megatron_keys.table()) == written(table("megatron"))
