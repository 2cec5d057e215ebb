"""The analytical model: NumPy, no I/O, no state. Shapes in, columns of seconds, bytes and joules out."""
