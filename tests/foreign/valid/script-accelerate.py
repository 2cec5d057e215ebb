"""A loop of its own on Accelerate."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, get_scheduler

from dataset import load_split


def main() -> None:
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=4)
    model = AutoModelForSequenceClassification.from_pretrained("FacebookAI/roberta-base", num_labels=2)
    loader = DataLoader(load_split("train"), shuffle=True, batch_size=16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    schedule = get_scheduler("linear", optimizer, num_warmup_steps=100, num_training_steps=10_000)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    for _ in range(3):
        for batch in loader:
            with accelerator.accumulate(model):
                accelerator.backward(model(**batch).loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
    accelerator.wait_for_everyone()
    accelerator.save_model(model, "out")


if __name__ == "__main__":
    main()
