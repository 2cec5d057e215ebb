"""torchtitan: configurations in Python (0.3), flags of its command line, and the older TOML."""
