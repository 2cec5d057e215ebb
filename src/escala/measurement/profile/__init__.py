"""Recorded steps: traces of PyTorch's profiler read, and what their step waits for. Loads no torch."""
