"""A person's own training step, run here: loaded, timed, traced, and varied one practice at a time.

What is arithmetic or only reads what was asked (spread, record, request, target, fault) loads without torch.
"""
