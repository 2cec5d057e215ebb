"""A model and texts small enough to train on a processor in a second."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

WORDS = ("one", "two", "three", "four", "five", "six", "[end]")


def tiny_model(folder: Path) -> Path:
    """A Llama of two narrow layers with a tokenizer of seven words, saved in a folder."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = Tokenizer(WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[end]"))
    words.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="[end]").save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=len(WORDS), hidden_size=8, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


class Rows:
    """Texts as rows, with the two methods of a data set that a training script calls."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts

    def __iter__(self) -> Iterator[dict[str, str]]:
        return iter({"text": text} for text in self.texts)

    def map(
        self, function: Callable[[dict[str, list[str]]], dict[str, list[Any]]], **_: object
    ) -> list[dict[str, Any]]:
        """What a function makes of all rows at once."""
        columns = function({"text": list(self.texts)})
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
