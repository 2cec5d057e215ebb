"""NeMo AutoModel: YAML of its recipes."""
