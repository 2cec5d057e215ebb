"""`escala bench`: times what training needs of a machine, in rounds until the budget is spent. Needs torch.

What is arithmetic or reads texts (fits, samples, host, counters, levels, smi, request) loads without it.
"""
