"""Arguments of the trainer of transformers: in files, on command lines, in Python."""
