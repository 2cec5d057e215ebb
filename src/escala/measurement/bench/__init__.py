"""`escala bench`: times what training needs of a machine, in rounds until the budget is spent.

Times PyTorch; where that is not installed, NumPy, which can do less. Modules that are about torch alone
(memory, network, products, step) load it, others inside the function that needs it.
"""
