"""Operations with weights whose work nobody knows: refused by name, for 0 FLOP would be a wrong number.

Knows which of PyTorch's own operations multiply no matrices: those that it tags as pointwise, and a list.
"""

from typing import Any, Final

import torch

from escala.errors import InvalidInput

MOVES: Final = """
_adaptive_avg_pool2d _assert_async _assert_tensor_metadata _conj _conj_physical _copy_from
_embedding_bag _embedding_bag_forward_only _reshape_copy _to_copy _unsafe_index _unsafe_index_put
_unsafe_masked_index _unsafe_view _upsample_bicubic2d_aa _upsample_bilinear2d_aa
_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d alias argsort as_strided
as_strided_copy as_strided_scatter avg_pool1d avg_pool2d avg_pool3d bernoulli bernoulli_ block_diag cat
channel_shuffle clone col2im constant_pad_nd copy copy_ cumprod cumsum detach detach_ diag_embed
diagonal_copy diagonal_scatter diff embedding embedding_renorm_ empty_like equal expand_copy fill fill_
flip full_like gather glu grid_sampler_2d grid_sampler_3d im2col index index_add index_copy index_fill
index_put index_put_ index_select lift_fresh masked_fill masked_fill_ masked_scatter masked_select
max_pool2d_with_indices new_empty new_empty_strided new_full new_ones new_zeros normal_ ones_like
permute_copy pixel_shuffle pixel_unshuffle rand_like randn_like reflection_pad1d reflection_pad2d
reflection_pad3d renorm repeat repeat_interleave replication_pad1d replication_pad2d replication_pad3d
reshape_copy resize_ roll rot90 scatter scatter_add scatter_reduce scatter_reduce_ select_copy
select_scatter set_ slice_copy slice_scatter sort split_copy split_with_sizes_copy squeeze_copy stack
t_copy take topk transpose_copy tril triu unbind_copy unfold_copy uniform_ unique_dim unsafe_chunk
unsafe_split unsafe_split_with_sizes unsqueeze_copy upsample_bicubic2d upsample_bilinear2d
upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_trilinear3d
view_copy zero zero_ zeros_like
"""
"""Operations of PyTorch that copy, place and interpolate numbers."""
REDUCES: Final = """
_fused_rms_norm _is_all_true _is_any_true _linalg_norm _log_softmax _native_batch_norm_legit
_native_batch_norm_legit_functional _native_batch_norm_legit_no_training _prelu_kernel _softmax
_weight_norm_interface all amax amin aminmax any argmax argmin count_nonzero linalg_vector_norm
logsumexp max mean median min mode native_batch_norm native_dropout native_group_norm native_layer_norm
norm prelu prod std std_mean sum var var_mean
"""
"""Operations of PyTorch that sum, normalise or find the largest."""
KNOWN: Final = frozenset((*MOVES.split(), *REDUCES.split()))
BACKWARD: Final = "_backward"
REMEDY: Final = (
    "use operations whose work is known, such as linear, matmul, einsum and conv, or trace the module "
    "without it"
)


def multiplies_nothing(function: Any) -> bool:
    """Whether an operation is known to hold no products: pointwise, moving or reducing numbers."""
    packet = function.overloadpacket
    if torch.Tag.pointwise in function.tags:
        return True
    name = str(packet.__name__).removesuffix(BACKWARD)
    return function.namespace in ("aten", "prims", "prim") and name in KNOWN


def unknown_work(function: Any, path: str, what: str) -> InvalidInput:
    """The error that names an operation and the module that runs it."""
    name = f"{function.namespace}::{function.overloadpacket.__name__}"
    return InvalidInput(f"{path or 'the module'} runs {name}, {what}; {REMEDY}")
