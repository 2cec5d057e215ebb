"""torchtune: YAML of its recipes, read only: its development stopped in 2025."""
