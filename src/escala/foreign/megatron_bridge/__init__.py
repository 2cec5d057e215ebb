"""Megatron-Bridge: recipes in Python and overrides on the command line."""
