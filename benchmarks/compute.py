"""Predicted against measured: one step of small networks on one device, from one bench file of this machine.

    escala bench --device cpu -o bench.json
    python benchmarks/compute.py bench.json                  # six networks that no formula was developed on
    python benchmarks/compute.py bench.json --set first      # six that a first version was judged on
    python benchmarks/compute.py bench.json --set developed  # those on which the formulas were developed

Forward, backward and AdamW in fp32, eager, without dropout; models of transformers with random weights. All
predictions are made first. Repeats go round over the networks: a busy moment spoils one repeat of each.
Needs PyTorch and transformers; nothing is loaded from a hub.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers

from escala.formats.cluster_toml import read_cluster
from escala.formats.networks import find_network
from escala.model.estimate import Estimate, estimate
from escala.model.plan import Plan, Plans, Precision
from escala.planning.defaults import Question, answerable

TERMS = ("matmul_s", "attention_s", "elementwise_s", "routing_s", "head_s", "embedding_s", "dispatch_s")
TERMS = (*TERMS, "optimizer_s", "overhead_s")
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
SETS = {"judged": JUDGED, "first": FIRST_JUDGED, "developed": DEVELOPED}


def predicted(case: Case, bench: str) -> Estimate:
    """The estimate of one step on the measured machine, read from a config.json as any other."""
    with tempfile.TemporaryDirectory() as folder:
        made = getattr(transformers, case.config)(**case.changes).to_dict()
        file = Path(folder) / "config.json"
        file.write_text(
            json.dumps({**made, "architectures": [case.architecture], **_sized(case)}, default=str)
        )
        network = find_network(str(file))
    question = Question(
        network=network,
        cluster=read_cluster(bench, 1),
        sequence_tokens=None if case.is_image else case.length,
        global_batch=case.batch,
        precision="fp32",
    )
    problem, _ = answerable(question)
    return estimate(problem, Plans.of(Plan(micro_batch=case.batch, precision=Precision.FP32)))


def _sized(case: Case) -> dict[str, object]:
    return {"image_size": case.length} if case.is_image else {}


def prepared(case: Case) -> Callable[[], float]:
    """One training step; its seconds."""
    torch.manual_seed(0)
    changes = {
        name: value for name, value in case.changes.items() if name != "image_size" or "ViT" in case.config
    }
    config = getattr(transformers, case.config)(**changes)
    network = getattr(transformers, case.architecture)(config).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
    if case.is_image:
        pixels = torch.randn(case.batch, 3, case.length, case.length)
        given = {"pixel_values": pixels, "labels": torch.randint(100, (case.batch,))}
    else:
        ids = torch.randint(config.vocab_size, (case.batch, case.length))
        given = {"input_ids": ids, "labels": ids}

    def step() -> float:
        began = time.perf_counter()
        network(**given).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return time.perf_counter() - began

    return step


def measured(cases: tuple[Case, ...], repeats: int) -> list[list[float]]:
    """Seconds of every repeat of every network, in rounds; two rounds to warm up are left out."""
    steps = [prepared(case) for case in cases]
    rounds = [[step() for step in steps] for _ in range(repeats + 2)][2:]
    return [list(column) for column in zip(*rounds, strict=True)]


def main() -> None:
    """Predict all, measure all, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("bench", help="bench.json of this machine, of one rank")
    parser.add_argument("--set", choices=SETS, default="judged")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--terms", action="store_true", help="only predict, term by term")
    given = parser.parse_args()
    transformers.logging.set_verbosity_error()
    cases = SETS[given.set]
    estimates = [predicted(case, given.bench) for case in cases]
    if given.terms:
        for case, each in zip(cases, estimates, strict=True):
            parts = {name: float(getattr(each.time, name)[0]) for name in TERMS}
            words = "  ".join(f"{name[:-2]} {value * 1e3:.1f}" for name, value in parts.items())
            print(f"{case.title:30} {float(each.step_s[0]) * 1e3:7.1f} ms  {words}")
        return
    seconds, errors = measured(cases, given.repeats), []
    print("| network | predicted | best | median | error |")
    print("|---|---|---|---|---|")
    for case, each, samples in zip(cases, estimates, seconds, strict=True):
        step_s, best = float(each.step_s[0]), min(samples)
        errors.append(step_s / best - 1.0)
        print(
            f"| {case.title} | {step_s * 1e3:.0f} ms | {best * 1e3:.0f} ms"
            f" | {statistics.median(samples) * 1e3:.0f} ms | {errors[-1]:+.1%} |"
        )
    sizes = sorted(abs(each) for each in errors)
    print(f"\nmedian absolute error {statistics.median(sizes):.1%}, worst {sizes[-1]:.1%}")


if __name__ == "__main__":
    main()
