"""Accelerate's configuration files and launch lines."""
