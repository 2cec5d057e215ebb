"""Manifests of Kubernetes that train: TrainJob, PyTorchJob, JobSet, Job."""
