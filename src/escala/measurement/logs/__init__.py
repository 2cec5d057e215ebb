"""Logs of other tools as numbers: one module for each family of formats, and what becomes of them."""
