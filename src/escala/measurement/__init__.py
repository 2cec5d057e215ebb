"""What was measured: by a bench of a machine, or by others in the logs of a run. Predicts nothing itself."""
