"""TensorFlow: the variable TF_CONFIG, and strategies in scripts."""
