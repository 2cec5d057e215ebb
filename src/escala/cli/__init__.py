"""The command line: parse, call one verb, render. No arithmetic and no NumPy."""
