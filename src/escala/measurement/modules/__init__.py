"""Any nn.Module run without data: its parameters, work, kept bytes and repeated blocks as a network."""
