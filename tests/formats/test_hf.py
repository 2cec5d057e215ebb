"""Reading a config.json: each way in which a file can be wrong is one clear line."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from escala import inputs
from escala.catalog import networks
from escala.catalog.families import context_of
from escala.errors import InvalidInput
from escala.formats.hf import network_from_config, read_network
from escala.formats.networks import find_config

LLAMA = dict(networks.config("llama-3.1-8b"))


def write(folder: Path, content: bytes | dict[str, Any]) -> Path:
    path = folder / "config.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def refusal(path: Path | str) -> str:
    with pytest.raises(InvalidInput) as caught:
        read_network(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def refused(**changes: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        network_from_config({**LLAMA, **changes}, "mine", "test")
    return str(caught.value)


def test_file_and_folder_are_the_same(tmp_path: Path):
    path = write(tmp_path, LLAMA)

    assert read_network(path) == read_network(tmp_path)
    assert read_network(tmp_path).name == tmp_path.name


def test_another_file_name_is_the_name(tmp_path: Path):
    path = write(tmp_path, LLAMA).rename(tmp_path / "my-llama.json")

    assert read_network(path).name == "my-llama"


def test_byte_order_mark_of_utf8_is_accepted(tmp_path: Path):
    path = write(tmp_path, b"\xef\xbb\xbf" + json.dumps(LLAMA).encode())

    assert read_network(path).layers == 32


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "latin-1"])
def test_other_encodings_are_refused(tmp_path: Path, encoding: str):
    text = json.dumps({**LLAMA, "name": "ñ"}, ensure_ascii=False)
    message = refusal(write(tmp_path, text.encode(encoding)))

    assert "UTF-16; save it as UTF-8" in message or "not UTF-8" in message or "not JSON" in message


def test_missing_file(tmp_path: Path):
    assert "does not exist; check the path" in refusal(tmp_path / "none.json")


def test_folder_without_config(tmp_path: Path):
    assert "config.json does not exist" in refusal(tmp_path)


def test_too_large_a_file_is_not_parsed(tmp_path: Path):
    path = write(tmp_path, b"")
    os.truncate(path, inputs.MOST_BYTES + 1)

    assert "larger than 20 MB" in refusal(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_forbidden_file(tmp_path: Path):
    path = write(tmp_path, LLAMA)
    path.chmod(0)

    assert "may not be read by this user" in refusal(path)


def test_permission_error_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def denied(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", denied)

    assert "may not be read by this user; change its permissions" in refusal(write(tmp_path, LLAMA))


@pytest.mark.parametrize("path", ["a\0b.json", "x" * 5000 + ".json"])
def test_impossible_path(path: str):
    assert "cannot be read" in refusal(path)


@pytest.mark.parametrize("content", [b"{", b"{'a': 1}", b"\x00\x01", b'{"a": NaN}', b"[" * 100_000])
def test_no_json(tmp_path: Path, content: bytes):
    assert "is not JSON (" in refusal(write(tmp_path, content))


@pytest.mark.parametrize("content", [b"[]", b"3", b'"llama"', b"null", b"true"])
def test_json_but_no_object(tmp_path: Path, content: bytes):
    assert "not an object with named keys" in refusal(write(tmp_path, content))


def test_empty_object_lacks_model_type(tmp_path: Path):
    assert "key 'model_type' is missing at the top level of the config" in refusal(write(tmp_path, b"{}"))


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"])
def test_missing_key_is_named(key: str):
    message = refused(**{key: None})

    assert f"mine: key '{key}'" in message
    assert "is missing at the top level of the config; add it" in message


@pytest.mark.parametrize("factor", [-2, 0])
@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("efficientnet-b4", "width_coefficient"),
        ("efficientnet-b4", "depth_coefficient"),
        ("efficientnet-b4", "squeeze_expansion_ratio"),
        ("mamba-130m", "expand"),
        ("mamba2-130m", "expand"),
    ],
)
def test_a_factor_of_sizes_is_above_0(name: str, key: str, factor: float):
    with pytest.raises(InvalidInput, match=f"{key}.*{factor}.*a number above 0"):
        network_from_config({**networks.config(name), key: factor}, "mine", "test")


def test_no_more_layers_share_keys_than_there_are():
    config = dict(networks.config("gemma-4-31b"))
    text = {**config.get("text_config", config), "num_kv_shared_layers": 99}
    changed = {**config, "text_config": text} if "text_config" in config else text

    with pytest.raises(InvalidInput, match=r"num_kv_shared_layers.*99.*fewer than"):
        network_from_config(changed, "mine", "test")


def test_missing_nested_key_is_placed():
    config = {**networks.config("gemma-3-4b"), "text_config": {"model_type": "gemma3_text"}}

    with pytest.raises(InvalidInput, match=r"'hidden_size' .* is missing in text_config of the config"):
        network_from_config(config, "mine", "test")


@pytest.mark.parametrize(
    "value", [0, -4096, 4096.0, float("nan"), float("inf"), True, "4096", [], {}, 2**20 + 1]
)
def test_hidden_size_is_a_whole_number_within_bounds(value: object):
    assert "'hidden_size' at the top level is" in (message := refused(hidden_size=value))
    assert "write a whole number from 1 to 1,048,576" in message


@pytest.mark.parametrize(
    ("key", "value", "most"),
    [
        ("num_hidden_layers", 10_001, "10,000"),
        ("vocab_size", 10**8 + 1, "100,000,000"),
        ("intermediate_size", 2**40, "1,073,741,824"),
        ("max_position_embeddings", 10**40, "1,073,741,824"),
    ],
)
def test_absurd_size_is_refused_with_its_bound(key: str, value: int, most: str):
    assert f"write a whole number from 1 to {most}" in refused(**{key: value})


def test_absurd_number_of_experts():
    config = {**networks.config("mixtral-8x7b"), "num_local_experts": 10**5 + 1}

    with pytest.raises(InvalidInput, match="from 1 to 100,000"):
        network_from_config(config, "mine", "test")


def test_a_number_of_many_digits_is_not_printed():
    assert "is a number of more than 30 digits" in refused(hidden_size=10**5000)


@pytest.mark.parametrize("value", [1, "true", "false", 0.0, []])
def test_flag_is_true_or_false(value: object):
    assert "write true or false" in refused(tie_word_embeddings=value)


def test_heads_that_do_not_divide_the_width():
    assert refused(num_attention_heads=7, num_key_value_heads=7) == (
        "mine: hidden size 4096 is no multiple of 7 heads; correct one of them"
    )


def test_groups_that_do_not_divide_the_heads():
    assert "'num_key_value_heads' at the top level is 5; write a divisor of the 32" in refused(
        num_key_value_heads=5
    )


def test_more_experts_chosen_than_there_are():
    config = {**networks.config("mixtral-8x7b"), "num_experts_per_tok": 9}

    with pytest.raises(InvalidInput, match="at most the 8 experts there are"):
        network_from_config(config, "mine", "test")


def test_layer_types_of_another_length():
    config = {**networks.config("gpt-oss-20b"), "layer_types": ["full_attention"]}

    with pytest.raises(InvalidInput, match="one kind for each of 24 layers"):
        network_from_config(config, "mine", "test")


def test_layer_types_of_another_kind():
    config = {**networks.config("gpt-oss-20b"), "layer_types": ["linear_attention"] * 24}

    with pytest.raises(InvalidInput, match="full_attention or sliding_attention in this family"):
        network_from_config(config, "mine", "test")


def test_nested_table_that_is_none():
    config = {**networks.config("gemma-3-4b"), "text_config": 3}

    with pytest.raises(InvalidInput, match="'text_config' at the top level is 3; write a table of keys"):
        network_from_config(config, "mine", "test")


def test_stages_of_different_lengths():
    config = {**networks.config("resnet-50"), "depths": [3, 4]}

    with pytest.raises(InvalidInput, match="one number for each of 4 hidden_sizes"):
        network_from_config(config, "mine", "test")


def test_patches_larger_than_the_image():
    config = {**networks.config("vit-b/16"), "patch_size": 500}

    with pytest.raises(InvalidInput, match="at most the image, 224 x 224"):
        network_from_config(config, "mine", "test")


def test_unknown_model_type_names_near_ones_and_the_way_out():
    message = refused(model_type="lama")

    assert "unknown model_type 'lama': did you mean llama" in message
    assert "describe other networks in a TOML file" in message


def test_unknown_model_type_with_remote_code():
    message = refused(model_type="my_own", auto_map={"AutoConfig": "configuration.Mine"})

    assert "code of the model repository, which escala never runs" in message


def test_head_that_bert_does_not_have_here():
    config = {**networks.config("bert-base"), "architectures": ["BertForMultipleChoice"]}

    with pytest.raises(InvalidInput, match="'architectures' at the top level is 'BertForMultipleChoice'"):
        network_from_config(config, "mine", "test")


def test_the_keys_of_a_config_are_found_by_name_folder_and_file(tmp_path: Path):
    path = write(tmp_path, LLAMA)

    assert find_config(str(path)) == find_config(str(tmp_path)) == LLAMA
    assert find_config("meta-llama/Llama-3.1-8B") == LLAMA


def test_a_network_in_own_words_has_no_config(tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_text('schema = "escala/network@1"\n')

    with pytest.raises(InvalidInput, match="in escala's own words; give its config"):
        find_config(str(path))


@pytest.mark.parametrize(
    ("keys", "most"),
    [
        ({"model_type": "gpt2"}, 1024),  # the default of a table of positions is a bound
        ({"model_type": "gpt2", "n_positions": 256}, 256),
        ({"model_type": "roberta", "max_position_embeddings": 514}, 512),  # two rows hold no token
        ({"model_type": "gemma3", "text_config": {"max_position_embeddings": 8}}, 8),
        ({"model_type": "unheard-of", "max_position_embeddings": 64}, 64),
        ({"model_type": "bloom"}, None),  # ALiBi has no table
        ({"model_type": "t5", "n_positions": 512}, None),  # relative positions: the key bounds nothing
        ({"model_type": "llama"}, None),
    ],
)
def test_the_longest_sample_is_that_of_the_table_or_of_the_config(keys: dict, most: int | None):
    assert context_of(keys, "net") == most
