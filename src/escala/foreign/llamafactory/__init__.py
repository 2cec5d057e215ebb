"""The YAML of LLaMA-Factory."""
