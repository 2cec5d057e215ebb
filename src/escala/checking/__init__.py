"""From the facts of a job to an answer: what is wrong with it for its model and cluster, whether it fits,
how fast it is, which smallest change helps and what would be better. Reads no file and draws nothing.
"""
