"""Networks whose steps `compute.py` predicts and measures. Shapes only; needs nothing that is installed."""

import random
from dataclasses import dataclass

BERT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
GPT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 0, "eos_token_id": 0}
MIXTRAL = {"sliding_window": None, "num_experts_per_tok": 2}


@dataclass(frozen=True)
class Case:
    """A network of transformers, its batch, and the tokens of a sequence or the side of an image."""

    title: str
    architecture: str
    config: str
    changes: dict[str, object]
    batch: int
    length: int

    @property
    def is_image(self) -> bool:
        return "Image" in self.architecture


def decoder(title: str, family: str, changes: dict[str, object], batch: int, length: int) -> Case:
    sized = {**changes, "n_positions" if family == "GPT2" else "max_position_embeddings": length}
    head = "LMHeadModel" if family == "GPT2" else "ForCausalLM"
    return Case(title, f"{family}{head}", f"{family}Config", sized, batch, length)


def image(title: str, family: str, changes: dict[str, object], batch: int, length: int) -> Case:
    labels = {"num_labels": 100}
    return Case(title, f"{family}ForImageClassification", f"{family}Config", labels | changes, batch, length)


def masked(title: str, width: int, layers: int, vocab: int, batch: int, length: int) -> Case:
    sized = _encoder(width, layers) | {"vocab_size": vocab}
    return Case(title, "BertForMaskedLM", "BertConfig", sized, batch, length)


def _gpt2(width: int, layers: int, vocab: int) -> dict[str, object]:
    return {"n_embd": width, "n_layer": layers, "n_head": width // 64, "vocab_size": vocab, **GPT}


def _llama(width: int, layers: int, inner: int, vocab: int) -> dict[str, object]:
    heads = {"num_attention_heads": width // 64, "num_key_value_heads": 4}
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "intermediate_size": inner,
        "vocab_size": vocab,
        **heads,
    }


def _encoder(width: int, layers: int) -> dict[str, object]:
    sizes = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": width // 64}
    return {**sizes, "intermediate_size": 4 * width, **BERT}


def _mixtral(width: int, layers: int, inner: int, experts: int, vocab: int) -> dict[str, object]:
    return {**_llama(width, layers, inner, vocab), **MIXTRAL, "num_local_experts": experts} | {
        "num_key_value_heads": 2
    }


DEVELOPED = (
    decoder("GPT-2, 4 x 384", "GPT2", _gpt2(384, 4, 5000), 4, 192),
    decoder("Llama, 4 x 512", "Llama", _llama(512, 4, 1408, 6000), 2, 384),
    decoder("Mixtral, 3 x 256, 4 experts", "Mixtral", _mixtral(256, 3, 768, 4, 4000), 4, 192),
    image(
        "ResNet-18, 160 pixels",
        "ResNet",
        {
            "layer_type": "basic",
            "depths": [2, 2, 2, 2],
            "hidden_sizes": [64, 128, 256, 512],
            "image_size": 160,
        },
        8,
        160,
    ),
    masked("BERT, 4 x 320", 320, 4, 4000, 6, 160),
    image("ViT, 5 x 320, 160 pixels", "ViT", _encoder(320, 5) | {"image_size": 160}, 6, 160),
)
FIRST_JUDGED = (
    decoder("GPT-2, 6 x 512", "GPT2", _gpt2(512, 6, 8000), 4, 256),
    decoder("Llama, 3 x 768", "Llama", _llama(768, 3, 2048, 12000), 2, 512),
    decoder("Mixtral, 3 x 384, 8 experts", "Mixtral", _mixtral(384, 3, 1024, 8, 8000), 4, 256),
    image("ResNet-50, 224 pixels", "ResNet", {"image_size": 224}, 4, 224),
    masked("BERT, 6 x 512", 512, 6, 10000, 6, 192),
    image("ViT, 8 x 384, 192 pixels", "ViT", _encoder(384, 8) | {"image_size": 192}, 8, 192),
)
JUDGED = (
    decoder("GPT-2, 5 x 448", "GPT2", _gpt2(448, 5, 7000), 4, 224),
    decoder("Llama, 2 x 1024", "Llama", _llama(1024, 2, 2752, 9000), 2, 384),
    decoder("Mixtral, 2 x 512, 6 experts", "Mixtral", _mixtral(512, 2, 1280, 6, 6000), 4, 192),
    image("ResNet-50, 176 pixels", "ResNet", {"image_size": 176}, 6, 176),
    masked("BERT, 5 x 448", 448, 5, 7000, 5, 224),
    image("ViT, 6 x 448, 208 pixels", "ViT", _encoder(448, 6) | {"image_size": 208}, 6, 208),
)

DRAWN_SEED = 20261130
DRAWN_AGAIN_SEED = 20261201  # for formulas that came after the first draw had been run


def drawn(seed: int) -> tuple[Case, ...]:
    """Six networks of shapes that chance chooses; the ranges keep a step near a second on two cores."""
    chance = random.Random(seed)

    def among(least: int, most: int, unit: int = 1) -> int:
        return unit * chance.randint(least, most)

    def rows() -> tuple[int, int]:
        return among(2, 6), among(3, 10, 32)

    gpt, llama, mixtral = among(4, 10, 64), among(1, 3, 256), among(2, 5, 128)
    layers, inner, experts = among(2, 5), among(8, 12, llama // 4), among(3, 8)
    made = [
        decoder("GPT-2", "GPT2", _gpt2(gpt, layers, among(3, 12, 1000)), *rows()),
        decoder("Llama", "Llama", _llama(llama, among(2, 5), inner, among(3, 12, 1000)), *rows()),
        decoder(
            "Mixtral",
            "Mixtral",
            _mixtral(mixtral, among(2, 3), 2 * mixtral, experts, among(3, 12, 1000)),
            *rows(),
        ),
        _residual(among(3, 5, 16), [among(1, 4) for _ in range(4)], among(3, 8), among(7, 13, 16)),
        masked("BERT", among(4, 10, 64), among(2, 5), among(3, 12, 1000), *rows()),
    ]
    width, depth, side = among(4, 10, 64), among(2, 8), among(8, 14, 16)
    made.append(image("ViT", "ViT", _encoder(width, depth) | {"image_size": side}, among(3, 8), side))
    return tuple(made)


def _residual(width: int, depths: list[int], batch: int, side: int) -> Case:
    """A ResNet of bottlenecks, as wide as usual at 64."""
    sizes = {"embedding_size": width, "hidden_sizes": [width * 4 * 2**stage for stage in range(4)]}
    return image("ResNet", "ResNet", {**sizes, "depths": depths, "image_size": side}, batch, side)


SETS = {
    "drawn-again": drawn(DRAWN_AGAIN_SEED),
    "drawn": drawn(DRAWN_SEED),
    "judged": JUDGED,
    "first": FIRST_JUDGED,
    "developed": DEVELOPED,
}
