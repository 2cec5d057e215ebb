"""The few numbers shared by every prediction that belong to no chip, link or framework.

Their values, ranges and sources are in catalog/data/assumptions.toml; a measurement may replace any of them.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """Shared constants of the model; each has a value, a range and a source in the catalog."""

    gemm_memory_exposed: float
    gemm_launch_s: float
    gemm_norm: float
    flash_backward_ratio: float
    flash_ramp_tokens: float
    flash_exponential_width: float
    flash_block_tokens: float
    batched_gemm_ratio: float
    score_pass_bytes: float
    score_backward_ratio: float
    unfused_score_ratio: float
    misaligned_head_ratio: float
    loss_pass_bytes: float
    embedding_pass_bytes: float
    routing_passes: float
    expert_bias_bytes: float
    grouped_gemm_ratio: float
    expert_skew: float
    expert_skew_high: float
    expert_latency_s: float
    expert_overlap_exposed: float
    dispatch_units_share: float
    dispatch_norm: float
    dispatch_tensor_ratio: float
    dispatch_scaled_ratio: float
    unfused_dispatch_ratio: float
    lora_dispatch_ratio: float
    overlap_norm: float
    overlap_floor: float
    bubble_ratio: float
    transfer_efficiency: float
    transfer_latency_s: float
    exchange_ratio: float
    accumulate_bytes: float
    optimizer_pass_bytes: float
    step_tile_parameters: float
    host_link_efficiency: float
    host_memory_bytes_per_s: float
    host_memory_efficiency: float
    host_update_bytes: float
    host_pinned_ratio: float
    straggler_per_doubling: float
    lora_backward_ratio: float
    dequantize_pass_bytes: float
    convolution_passes: float
    squeeze_passes: float
    layout_bytes: float
    grouped_efficiency: float
    convolution_dispatch_ratio: float
    power_compute_share: float
    power_communication_share: float
    power_idle_share: float
    reserve_bytes: float
    process_bytes: float
    risky_share: float
    full_share: float
    interval_pipeline_ratio: float
    interval_pipeline_known_ratio: float
    interval_sharded_ratio: float
    interval_sharded_known_ratio: float
    interval_small_ratio: float
    interval_small_known_ratio: float
    interval_replicated_ratio: float
    interval_replicated_known_ratio: float
    interval_convolution_ratio: float
    interval_convolution_known_ratio: float
    interval_long_ratio: float
    interval_long_known_ratio: float
    interval_slow_ratio: float
    interval_slow_known_ratio: float
    interval_adapted_ratio: float
    interval_adapted_known_ratio: float
    interval_experts_ratio: float
    interval_experts_known_ratio: float
    interval_chip_ratio: float
    interval_host_ratio: float
    memory_interval_low: float
    memory_interval_high: float
