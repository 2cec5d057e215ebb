"""Configurations of TRL: YAML of its command, and the command itself."""
