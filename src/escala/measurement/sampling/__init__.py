"""Samples of what a command and its node use, taken by a thread beside it. Starts no command, draws nothing.

`sampler.Sampler(os.getpid(), every_s=1.0, take=totals.add)` samples while its `with` lasts; `totals.Totals`
then has mean and peak. The sampler needs psutil (`extra.require_libraries`); sample, usage and totals do not.
"""
