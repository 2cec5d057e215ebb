"""Memory without hardware: a rank of a plan run on tensors without data. Predicts nothing."""
