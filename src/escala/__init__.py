"""escala: measure, plan, run and verify the distributed training of AI models."""

__version__ = "0.1.0"
