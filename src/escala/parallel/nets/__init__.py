"""Networks to train without another library: decoders in plain PyTorch, made from a network's description."""
