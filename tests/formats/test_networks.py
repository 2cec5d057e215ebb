"""One name for a network: catalogue, file, folder or hub."""

import builtins
import json
from pathlib import Path
from typing import Any

import pytest

from escala.catalog import networks
from escala.errors import InvalidInput, MissingExtra
from escala.formats import hub
from escala.formats.networks import find_network

CONFIG = dict(networks.config("qwen3-0.6b"))
DESCRIPTION = {"network": {"hidden": 64, "layers": 2, "heads": 4, "vocab": 100}}


def test_catalogue_name():
    assert find_network("Qwen3-0.6B") is networks.network("qwen3-0.6b")


def test_folder_and_its_config(tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))

    assert find_network(str(tmp_path)) == find_network(str(tmp_path / "config.json"))
    assert find_network(str(tmp_path)).stacks == networks.network("qwen3-0.6b").stacks


def test_json_of_either_kind(tmp_path: Path):
    (tmp_path / "a.json").write_text(json.dumps(CONFIG))
    (tmp_path / "b.json").write_text(json.dumps(DESCRIPTION))

    assert find_network(str(tmp_path / "a.json")).family == "qwen3"
    assert find_network(str(tmp_path / "b.json")).family == "description"


def test_description(tmp_path: Path):
    (tmp_path / "mine.toml").write_text("[network]\nhidden = 64\nlayers = 2\nheads = 4\nvocab = 100\n")

    assert find_network(str(tmp_path / "mine.toml")).name == "mine"


@pytest.mark.parametrize("given", ["", "no such network", "none.toml", "none.json"])
def test_what_does_not_exist_is_refused(given: str):
    with pytest.raises(InvalidInput):
        find_network(given)


def test_hub_without_its_library_names_the_command(monkeypatch: pytest.MonkeyPatch):
    whole_import = builtins.__import__

    def without_hub(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("huggingface_hub"):
            raise ImportError(name)
        return whole_import(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without_hub)

    with pytest.raises(MissingExtra, match=r"pip install 'escala\[hf\]'"):
        find_network("hf:Qwen/Qwen3-0.6B")


class Lost(Exception):
    """What the HTTP library of the hub raises; no OSError."""


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stand-in for the library: fetches what the test sets, or raises it."""
    import sys
    import types

    library: Any = types.ModuleType("huggingface_hub")
    library.errors = types.ModuleType("huggingface_hub.errors")
    library.errors.HfHubHTTPError = type("HfHubHTTPError", (Lost, OSError), {})
    library.try_to_load_from_cache = lambda name, file: None
    library.hf_hub_url = "{}/{}".format
    library.get_hf_file_metadata = lambda url: None
    monkeypatch.setitem(sys.modules, "huggingface_hub", library)
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", library.errors)
    return library


def test_hub_network_carries_its_id(tmp_path: Path, fetched: Any):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    fetched.hf_hub_download = lambda name, file: str(tmp_path / file)

    network = hub.from_hub("Qwen/Qwen3-0.6B")

    assert (network.name, network.source) == ("Qwen3-0.6B", "config.json, huggingface.co/Qwen/Qwen3-0.6B")


def test_offline_hub_is_one_clear_line(fetched: Any):
    def offline(name: str, file: str) -> str:
        raise OSError("no connection\nmore lines")

    fetched.hf_hub_download = offline

    with pytest.raises(InvalidInput, match=r"cannot be fetched from the hub \(no connection\); check the id"):
        hub.from_hub("Qwen/Qwen3-0.6B")


def test_a_lost_connection_is_one_try_and_one_line(fetched: Any):
    def lost(url: str) -> None:
        raise Lost("Name or service not known\nmore lines")

    fetched.get_hf_file_metadata = lost  # the download, which retries, is not there to be called

    with pytest.raises(InvalidInput, match=r"from the hub \(Name or service not known\); check the id"):
        hub.from_hub("Qwen/Qwen3-0.6B")


@pytest.mark.optional
def test_offline_library_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    constants = pytest.importorskip("huggingface_hub.constants", reason="needs huggingface_hub")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))

    with pytest.raises(InvalidInput, match=r"config\.json of 'no-one/nothing' cannot"):
        hub.from_hub("no-one/nothing")


@pytest.mark.parametrize("given", ["hf:", "hf: ", "hf:/"])
def test_hub_id_that_is_empty_is_refused_before_anything_is_fetched(given):
    with pytest.raises(InvalidInput, match="names no repository"):
        find_network(given)
