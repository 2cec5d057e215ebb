"""Training scripts in Python: PyTorch loops, and calls of Accelerate in them."""
