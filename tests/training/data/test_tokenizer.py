"""Text by a tokenizer.json; needs tokenizers."""

import sys
from pathlib import Path

import pytest

from escala.errors import InvalidInput, MissingExtra
from escala.training.data.encoders import dtype_of, encoder_of
from escala.training.data.tokens import open_tokens


def tokenizer(folder: Path, *special: str, words: int = 5) -> Path:
    """One token a word, numbered in this order: the special ones, what is unknown, word0, word1, ..."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    names = [*special, "[UNK]", *(f"word{n}" for n in range(words))]
    made = Tokenizer(models.WordLevel({name: n for n, name in enumerate(names)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens([*special, "[UNK]"])
    if special:
        # as Llama's does: a token before each text, which training on packed text has no use for
        made.post_processor = processors.TemplateProcessing(
            single=f"{special[0]} $A", special_tokens=[(special[0], 0)]
        )
    made.enable_truncation(3)
    made.enable_padding(length=8)
    made.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def row(folder: Path) -> list[int]:
    tokens = open_tokens(folder)
    return tokens.stretch(0, len(tokens)).tolist()


@pytest.mark.optional
def test_documents_are_tokens_of_the_text_and_the_end(made, tmp_path: Path):
    (tmp_path / "a.txt").write_text("word0 word1\nword2 word4 other")
    file = tokenizer(tmp_path, "<s>", "</s>")

    index = made(tmp_path / "a.txt", encoder=encoder_of(file, None))

    # <s> 0, </s> 1, [UNK] 2, word0 3; nothing is cut, filled up or put in front
    assert row(tmp_path / "tokens") == [3, 4, 5, 7, 2, 1]
    assert (index.encoding.vocabulary, index.encoding.end, index.encoding.end_token) == (8, "</s>", 1)


@pytest.mark.optional
def test_the_name_of_a_special_token_in_a_text_is_text(made, tmp_path: Path):
    from tokenizers import Tokenizer, models

    letters = Tokenizer(models.BPE({letter: n for n, letter in enumerate("</s>ab")}, []))
    letters.add_special_tokens(["</s>"])
    letters.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "a.txt").write_text("a</s>b")

    made(tmp_path / "a.txt", encoder=encoder_of(tmp_path / "tokenizer.json", None))

    # < 0, / 1, s 2, > 3, a 4, b 5; the end of the document is 6
    assert row(tmp_path / "tokens") == [4, 0, 1, 2, 3, 5, 6]


@pytest.mark.optional
def test_vocabularies_above_65536_take_four_bytes(made, tmp_path: Path):
    (tmp_path / "a.txt").write_text("word65538")

    index = made(tmp_path / "a.txt", encoder=encoder_of(tokenizer(tmp_path, "<eos>", words=65_540), None))

    assert index.encoding.dtype == "uint32"
    assert row(tmp_path / "tokens") == [65_540, 0]


@pytest.mark.optional
def test_a_named_end_is_taken(tmp_path: Path):
    file = tokenizer(tmp_path, "<eos>", "</s>")

    assert encoder_of(file, "</s>").encoding.end_token == 1


@pytest.mark.optional
@pytest.mark.parametrize(
    ("special", "end", "message"),
    [
        (("<eos>", "</s>"), None, r"it has </s> and <eos>; special tokens: <eos>, </s>.*name it with --end"),
        ((), None, "it has none of the usual ones"),
        (("<eos>",), "<eoss>", "has no token '<eoss>' for --end; did you mean <eos>"),
        (("<eos>",), "x", "has no token 'x' for --end; look into the file"),
    ],
)
def test_an_end_that_is_not_clear_is_asked_for(tmp_path: Path, special: tuple, end: str | None, message: str):
    file = tokenizer(tmp_path, *special)

    with pytest.raises(InvalidInput, match=message):
        encoder_of(file, end)


@pytest.mark.optional
@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b'{"model": 3}', b"[1, 2]"])
def test_a_file_that_is_no_tokenizer_is_one_clear_line(tmp_path: Path, content: bytes):
    (tmp_path / "t.json").write_bytes(content)

    with pytest.raises(InvalidInput, match=r"t\.json is no tokenizer\.json \(.*\); name one") as error:
        encoder_of(tmp_path / "t.json", None)

    assert "\n" not in str(error.value)


def test_the_type_is_the_smaller_one_that_holds_every_token():
    assert [dtype_of(vocabulary) for vocabulary in (257, 65_536, 65_537)] == ["uint16", "uint16", "uint32"]


def test_a_tokenizer_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(InvalidInput, match="does not exist"):
        encoder_of(tmp_path / "none.json", None)


def test_without_tokenizers_the_extra_is_named(tmp_path: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    (tmp_path / "t.json").write_text("{}")

    with pytest.raises(MissingExtra, match=r"tokenizers is not installed: pip install 'escala\[data\]'"):
        encoder_of(tmp_path / "t.json", None)
