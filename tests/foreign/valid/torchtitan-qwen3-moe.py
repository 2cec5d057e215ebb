"""Qwen3 30B-A3B: experts over eight ranks, long context cut over two."""

import torchtitan.models.qwen3 as qwen3
from torchtitan.models.qwen3.config_registry import qwen3_30b_a3b


def base():
    c = qwen3_30b_a3b()
    c.training.disable_cuda_graphs = True
    c.parallelism.expert_parallel_degree = 8
    return c


def long_context():
    c = base()
    c.model_spec = qwen3.model_registry("30B-A3B", moe_comm_backend="deepep")
    c.training.seq_len = 32768
    c.parallelism.context_parallel_degree = 2
    c.activation_checkpoint = None
    return c
