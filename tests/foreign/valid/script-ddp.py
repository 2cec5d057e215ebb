"""Trains an image classifier on one node.

torchrun --standalone --nproc-per-node=gpu script-ddp.py --epochs 90
"""

import argparse
import os

import torch
import torch.distributed as dist
import torchvision
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import transforms


def train_one_epoch(model, loader, optimizer, scaler, device, accumulation):
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    total = torch.zeros((), device=device)
    for step, (images, target) in enumerate(loader):
        images = images.to(device, non_blocking=True)
        target = target.to(device, non_blocking=True)
        is_last = (step + 1) % accumulation == 0
        model.require_backward_grad_sync = is_last
        with torch.autocast("cuda", dtype=torch.float16):
            loss = criterion(model(images), target) / accumulation
        scaler.scale(loss).backward()
        if is_last:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
        total += loss.detach()
        if step % 100 == 0:
            print(step, total.item())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--batch-size", type=int, default=256)
    args = parser.parse_args()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")
    device = torch.device("cuda", local_rank)
    torch.manual_seed(17 + dist.get_rank())

    train_set = torchvision.datasets.ImageFolder(
        "train", transforms.Compose([transforms.RandomResizedCrop(224), transforms.ToTensor()])
    )
    val_set = torchvision.datasets.ImageFolder("val", transforms.ToTensor())
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, args.batch_size, sampler=sampler, num_workers=8, pin_memory=True)
    val_loader = DataLoader(val_set, 256, shuffle=False)

    model = DDP(torchvision.models.resnet50().to(device), device_ids=[local_rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda")
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        train_one_epoch(model, loader, optimizer, scaler, device, 4)
        if dist.get_rank() == 0:
            torch.save(model.module.state_dict(), f"resnet-{epoch}.pt")
        dist.barrier()
    print(len(val_loader))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
