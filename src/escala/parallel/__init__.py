"""Applies a plan to a real module on PyTorch's distributed engine: meshes, passes, networks. Needs torch.

Knows modules, process groups and shards; knows neither data nor clocks nor files.
"""
