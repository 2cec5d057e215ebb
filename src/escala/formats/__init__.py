"""Foreign formats, one module each: read or written, never trusted."""
