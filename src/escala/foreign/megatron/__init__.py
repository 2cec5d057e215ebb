"""Megatron-LM: arguments of its training programs."""
