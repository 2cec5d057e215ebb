"""Text to tokens: by bytes, or by a tokenizer.json. Knows no file of text and no shard."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from escala.errors import InvalidInput, near, one_line
from escala.inputs import read_bytes, reason
from escala.training.data.extra import library

Tokens = NDArray[np.uint16] | NDArray[np.uint32]

BYTES: Final = "bytes"
BYTE_VALUES: Final = 256
MOST_TOKENIZER_BYTES: Final = 200_000_000
# What tokenizers of pretrained networks call the token behind a document; of two, a person has to choose.
ENDS: Final = ("<|endoftext|>", "<|end_of_text|>", "<|end▁of▁sentence|>", "</s>", "<eos>", "<|eos|>", "[EOS]")


class Encoding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How text became tokens: by bytes or a tokenizer's hash; the vocabulary, the token behind a document."""

    by: str
    vocabulary: int
    end: str
    end_token: int
    dtype: str


class Encoder(Protocol):
    """Turns texts into tokens, without any token before or behind."""

    encoding: Encoding

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """The tokens of each text."""
        ...


class ByteEncoder:
    """The bytes of UTF-8 are the tokens; 256 ends a document."""

    encoding = Encoding(
        by=BYTES, vocabulary=BYTE_VALUES + 1, end="end of document", end_token=BYTE_VALUES, dtype="uint16"
    )

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """The bytes of each text."""
        return [np.frombuffer(each.encode(), np.uint8).astype(np.uint16) for each in texts]


class TokenizerEncoder:
    """A tokenizer of the library `tokenizers`; names of special tokens in a text are text."""

    def __init__(self, file: Path, end: str | None) -> None:
        content = read_bytes(file, MOST_TOKENIZER_BYTES, "name a tokenizer.json")
        self._tokenizer = _loaded(content, file)
        self._tokenizer.encode_special_tokens = True
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        vocabulary = 1 + max(self._tokenizer.get_vocab().values(), default=-1)
        name = end if end is not None else self._only_end(file)
        self.encoding = Encoding(
            by=hashlib.sha256(content).hexdigest(),
            vocabulary=vocabulary,
            end=name,
            end_token=self._number(name, file),
            dtype=dtype_of(vocabulary),
        )

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """The tokens of each text."""
        encoded = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(each.ids, self.encoding.dtype) for each in encoded]

    def _only_end(self, file: Path) -> str:
        special = [each.content for each in self._tokenizer.get_added_tokens_decoder().values()]
        found = [each for each in ENDS if each in special]
        if len(found) == 1:
            return found[0]
        seen = " and ".join(found) if found else "none of the usual ones"
        there = ", ".join(map(one_line, special[:10])) or "none"
        raise InvalidInput(
            f"{file}: which token ends a document is not clear (it has {seen}; special tokens: {there}); "
            "name it with --end"
        )

    def _number(self, name: str, file: Path) -> int:
        number = self._tokenizer.token_to_id(name)
        if number is None:
            close = near(name, self._tokenizer.get_vocab())
            hint = f"did you mean {' or '.join(close)}?" if close else "look into the file"
            raise InvalidInput(f"{file} has no token '{one_line(name)}' for --end; {hint}")
        return int(number)


def dtype_of(vocabulary: int) -> str:
    """The smaller of two types that holds every token."""
    return "uint16" if vocabulary <= 2**16 else "uint32"


def encoder_of(tokenizer: Path | None, end: str | None) -> Encoder:
    """Bytes, or the tokenizer of a file."""
    if tokenizer is not None:
        return TokenizerEncoder(tokenizer, end)
    if end is not None:
        raise InvalidInput("--end names a token of a tokenizer; give --tokenizer too, or leave it out")
    return ByteEncoder()


def _loaded(content: bytes, file: Path) -> Any:
    tokenizers = library("tokenizers", f"{file} is a tokenizer")
    try:
        return tokenizers.Tokenizer.from_buffer(content)
    except Exception as error:
        if type(error) not in (Exception, ValueError):  # the library raises nothing narrower
            raise
        raise InvalidInput(f"{file} is no tokenizer.json ({reason(error)}); name one") from None
