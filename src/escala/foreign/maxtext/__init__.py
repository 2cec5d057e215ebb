"""MaxText: YAML and key=value arguments of its programs."""
