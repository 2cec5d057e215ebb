"""Flower: the pyproject.toml of its apps."""
