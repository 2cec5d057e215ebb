"""Slurm's batch scripts."""
