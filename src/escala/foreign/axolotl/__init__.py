"""The YAML of Axolotl."""
