"""Federated learning: decide with numbers, simulate, run on Flower. Data stay where they are."""
