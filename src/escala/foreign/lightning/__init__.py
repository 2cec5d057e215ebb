"""Lightning: Trainer(...) in Python files, and the trainer block of LightningCLI YAML."""
