"""Trains a module under a plan: data, loop, checkpoints, launch. Needs torch where it runs."""
