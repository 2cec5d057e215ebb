"""Software: what a framework generation keeps, moves and waits for. Knows numbers, not code.

An Engine is a versioned, sourced record (catalog/data/engines). At most three of its time numbers are
fitted (memory passes, dispatch per layer, GEMM level); the rest follows from what the software does.
"""

from dataclasses import dataclass
from enum import StrEnum


class AttentionKernel(StrEnum):
    """Generation of the attention kernel: it decides speed and what is kept."""

    UNFUSED = "unfused"
    FUSED_SOFTMAX = "fused-softmax"
    FLASH2 = "flash2"
    FLASH3 = "flash3"


class ConvolutionLayout(StrEnum):
    """In which order convolutions find pixels and channels: as tensor units want it is channels last."""

    CHANNELS_FIRST = "channels-first"
    CHANNELS_LAST = "channels-last"
    CHANNELS_LAST_IN_16_BIT = "channels-last-in-16-bit"


class SelectiveKind(StrEnum):
    """What selective recompute throws away: the attention core (Megatron) or cheap operators (torchtitan)."""

    ATTENTION_CORE = "attention-core"
    OPERATORS = "operators"


class Autocast(StrEnum):
    """When fp32 weights are cast to 16 bit op by op: never, unless weights are sharded, or always."""

    NEVER = "never"
    UNSHARDED = "unsharded"
    ALWAYS = "always"


class Gathering(StrEnum):
    """How sharded weights become whole: by layers (FSDP2), by matrices (XLA), by sub-groups (DeepSpeed)."""

    LAYERS = "layers"
    MATRICES = "matrices"
    SUBGROUPS = "subgroups"


class DistributedTensors(StrEnum):
    """What is a tensor that knows how it is split: nothing, all that split modules touch, or weights alone.

    MODULES: the styles of torch.distributed.tensor.parallel. WEIGHTS: modules see their rank's part as a
    plain tensor, as under escala train.
    """

    NONE = "none"
    MODULES = "modules"
    WEIGHTS = "weights"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTime:
    """What the software costs in time.

    `elementwise_passes` counts passes over tokens x hidden x 2 bytes per layer, `dispatch_s` the time the
    CPU needs to launch one layer forward, `gemm_level` scales matrix products. `..._exposed` is the share of
    a communication that is not hidden; `..._hidden` the share of the window behind which it can hide.
    `splits_transfers` sends each tensor rank's part of a stage's output alone (scatter and gather);
    `exchanges_in_turn`: two neighbouring stages that both have something to send do so one after the other.
    `moe_dispatch_ratio` are launches of a layer with experts over those of a dense one, without the experts
    themselves, of which each of a rank adds `expert_dispatch_ratio`.
    `send_exposed` holds where a rank has several stages, of which another can run meanwhile.
    `accumulation_exposed` is below 1 where gradients are added inside the products that make them.
    `convolution_layout` is the order in which image tensors lie.
    """

    gemm_level: float
    elementwise_passes: float
    compiled_passes_ratio: float
    dispatch_s: float
    dispatch_backward_ratio: float
    compiled_dispatch_ratio: float
    moe_dispatch_ratio: float
    expert_dispatch_ratio: float
    attention_kernel: AttentionKernel
    tensor_exposed: float
    compiled_tensor_exposed: float
    context_exposed: float
    expert_exposed: float
    send_exposed: float
    accumulation_exposed: float
    gradient_hidden: float
    gradient_window_bubble: bool
    gather_ratio: float
    micro_batch_overhead_s: float
    step_overhead_s: float
    reduces_every_micro_batch: bool
    zero_1_all_reduces: bool
    splits_transfers: bool
    exchanges_in_turn: bool
    convolution_layout: ConvolutionLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMemory:
    """What the software keeps, in bytes per parameter, per element or per logit.

    `weight_bytes` is the stored weight (4 when fp32 weights are the master), `gradient_bytes` the stored
    gradient, `master_bytes` a separate fp32 copy. `step_bytes` are temporaries of the optimizer step for each
    of at most `step_parameters`, `init_bytes` flat copies of every parameter while the engine starts.
    `norm_bytes` is what an eager RMSNorm keeps per element beyond its output,
    `mask_bytes` dropout masks per hidden element, `..._tensors` tensors of the feed-forward width.
    `loss_bytes` are bytes per logit at the peak of the loss; `fused_loss_bytes` with a fused or chunked
    cross-entropy. `context_bytes` is CUDA context and workspaces that the framework's own counter does not
    see, `communicator_bytes` the buffers of each group of ranks; `slack` the share that the allocator adds.
    `routed_bytes` is kept for each hidden element of a routed token, beside the inner tensors of its expert;
    `keeps_scaled_inputs` says that linear maps keep their inputs in the scaled format they multiply in.
    `keeps_gathered_inputs`: with sequence parallelism linear maps keep their whole input, not a part of it to
    gather again, and selective recompute the whole output of a row product. `units_at_loss` counts the
    gathered layer at the loss as well: it is freed by then, but its blocks are too small for the logits and
    stay reserved.
    `pins_fused_qkv`: one saved view keeps the fused output of query, key and value.
    `flat_step` says that step temporaries are one block, which no freed block can hold; `varied_length_ratio`
    what the allocator holds for a loss of varying length, over the longest. `keeps_stage_outputs` says that
    pipeline stages keep what they sent. Quantised maps may keep their inputs, with those of the step before
    (`quantised_input_bytes`), and `quantised_ends_share` of embedding and head is quantised as well.
    """

    weight_bytes: float
    gradient_bytes: float
    master_bytes: float
    autocast: Autocast
    step_bytes: float
    step_parameters: float
    flat_step: bool
    init_bytes: float
    keeps_gradients: bool
    bucket_bytes: float
    bucket_parameters: float
    live_parameters: float
    gathering: Gathering
    gathered_in_backward_bytes: float
    units_at_loss: bool
    loss_bytes: float
    compiled_loss_bytes: float
    fused_loss_bytes: float
    parallel_loss_bytes: float
    norm_bytes: float
    compiled_norm_bytes: float
    mask_bytes: float
    gated_tensors: float
    compiled_gated_tensors: float
    plain_tensors: float
    routed_bytes: float
    keeps_scaled_inputs: bool
    keeps_gathered_inputs: bool
    expands_kv: bool
    pins_fused_qkv: bool
    score_bytes: float
    keeps_stage_outputs: bool
    quantised_ends_share: float
    quantised_input_bytes: float
    selective: SelectiveKind
    static_slack: float
    dynamic_slack: float
    varied_length_ratio: float
    context_bytes: float
    communicator_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMessages:
    """When the software sends on one backend. The defaults are what published runs were described with.

    `prefetches`: gathers of sharded weights run beside computation. `gradient_bucket_bytes`: gradients wait
    until so many are together, the first time only for `first_bucket_bytes`; 0 is no bucket. `counts_ends`:
    embedding, head and root send messages of their own. `gathers_input_again`: SP keeps a rank's part of an
    input and gathers it again for backward. `distributed_tensors`: which tensors know how they are split
    (DTensor), see `distributed`. `overlaps_dispatch`: tokens travel to their experts while another
    micro-batch computes. `drops_duplicates`: tensor ranks that hold the same tokens send a part each and
    gather what arrives. `repeats_messages`: recomputed layers communicate again, else they keep what arrived.
    """

    prefetches: bool = True
    gradient_bucket_bytes: float = 0.0
    first_bucket_bytes: float = 0.0
    counts_ends: bool = False
    gathers_input_again: bool = True
    distributed_tensors: DistributedTensors = DistributedTensors.NONE
    overlaps_dispatch: bool = False
    drops_duplicates: bool = True
    repeats_messages: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A framework generation: name, versions, what it costs in time and in memory, and what it cannot do.

    `lacks` names abilities that it does not have (for example "zero-bubble-v", "hsdp"); see `rejects.needs`.
    `has` names those that few have (dynamic-cp, offload, other optimizer steps); see `offload.wants`.
    `messages` is by backend; others have the defaults. `is_calibrated` says that published runs of it took
    part in the fit, `calibrated_on` where.
    """

    name: str
    title: str
    versions: str
    source: str
    time: EngineTime
    memory: EngineMemory
    messages: tuple[tuple[str, EngineMessages], ...] = ()
    lacks: tuple[str, ...] = ()
    has: tuple[str, ...] = ()
    is_calibrated: bool = False
    calibrated_on: tuple[str, ...] = ()
