"""The families of published networks: from the keys of a config.json to a Network. Reads no file.

One small builder for each family, in a table keyed by model_type. Code of a model repository is never run.
"""

from escala.catalog.families.table import FAMILIES, Family, context_of, network_from_config

__all__ = ["FAMILIES", "Family", "context_of", "network_from_config"]
