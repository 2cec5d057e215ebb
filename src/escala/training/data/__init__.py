"""Samples for training: text to memory-mapped tokens, images, made-up data, and who reads which of them when.

Sample i of a run is the same under every layout, so a run goes on from the number of samples it has consumed.
"""
