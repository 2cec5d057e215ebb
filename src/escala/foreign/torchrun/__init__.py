"""torchrun: the launcher of PyTorch."""
