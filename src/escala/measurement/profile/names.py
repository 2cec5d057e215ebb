"""What the names in a trace mean: products, messages, wrappers, phases. Knows PyTorch's words, no times.

Names were checked against PyTorch 2.13 and Kineto's writer of the same time; those of device kernels are from
the documents of their libraries.
"""

import re
from typing import Final

# Operations that multiply, each the innermost one, so that none is counted inside another.
PRODUCTS: Final = frozenset(
    {
        "aten::mm",
        "aten::addmm",
        "aten::bmm",
        "aten::baddbmm",
        "aten::mv",
        "aten::addmv",
        "aten::dot",
        "aten::_scaled_mm",
        "aten::convolution",
        "aten::convolution_backward",
        "aten::_scaled_dot_product_flash_attention",
        "aten::_scaled_dot_product_flash_attention_backward",
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
        "aten::_scaled_dot_product_efficient_attention",
        "aten::_scaled_dot_product_efficient_attention_backward",
        "aten::_scaled_dot_product_cudnn_attention",
        "aten::_scaled_dot_product_cudnn_attention_backward",
    }
)
_PRODUCT_PARTS: Final = re.compile(
    r"aten::(mkldnn|cudnn|miopen|thnn|slow)_\w*conv|aten::_convolution$"
    r"|aten::(_flash|_efficient|_cudnn)_attention"
    r"|aten::(_grouped_mm|_scaled_grouped_mm|mkldnn_linear|_addmm_activation)|mkl::_mkl_linear|mkldnn::_linear"
)
_PRODUCT_KERNEL: Final = re.compile(
    r"gemm|cutlass|xmma|nvjet|wgmma|flash|fmha|attention_kernel|convolve|conv2d|conv_fprop|dgrad|wgrad|implicit"
    r"|Cijk_|triton_tem_|gemv",
    re.IGNORECASE,
)
_WIRE: Final = re.compile(r"(gloo|mpi|ucc):\w")
_WIRE_KERNEL: Final = re.compile(r"nccl|rccl|oneccl|nvshmem", re.IGNORECASE)
_WAITING: Final = re.compile(
    r"(_?c10d|c10d)(_functional)?::|_c10d_functional_autograd::|record_param_comms|ncclGroup|(gloo|nccl|mpi|ucc):"
)
# They hold other work, or hooks that wait for a message; what they do themselves is calling.
_WRAPPER: Final = re.compile(
    r"autograd::engine::|torch::autograd::|\w*Backward\d*$|Torch-Compiled Region|## Call CompiledFxGraph"
    r"|Optimizer\.|CompiledFunction|TorchDynamo|Pregraph"
)
_BACKWARD: Final = re.compile(r"autograd::engine::evaluate_function")
_DATA: Final = re.compile(
    r"enumerate\(DataLoader\)#|(?:.*[:/. _])?(data|load|loader|dataloader|data_load\w*|load_data"
    r"|next_batch|get_batch|fetch|\[?Strategy\]?.*batch_to_device|.*train_dataloader_next)$",
    re.IGNORECASE,
)
_PHASES: Final = {
    "optimizer": re.compile(
        r"Optimizer\.(step|zero_grad)#"
        r"|(?:.*[:/. _])?(optimi[sz]er(_step)?|opt|opt_step|update|clip_grad\w*)$",
        re.IGNORECASE,
    ),
    "backward": re.compile(r"(?:.*[:/. _])?(backward(_pass|_step)?|bwd)$", re.IGNORECASE),
    "forward": re.compile(r"(?:.*[:/. _])?(forward(_pass|_step)?|fwd|loss|model)$", re.IGNORECASE),
}
STEP: Final = re.compile(r"ProfilerStep#(\d+)$")
OPTIMIZER_STEP: Final = re.compile(r"Optimizer\.step#")
_OWN_STEP: Final = re.compile(
    r"(.*[:/. _])?(train(ing)?_)?(step|iter(ation)?|batch)[ _#]*\d*$", re.IGNORECASE
)


def is_product(name: str) -> bool:
    """Whether an operation multiplies matrices, convolves or attends."""
    return name in PRODUCTS or _PRODUCT_PARTS.match(name) is not None


def is_product_kernel(name: str) -> bool:
    """Whether a device kernel does, by the words of the libraries that have such kernels."""
    return _PRODUCT_KERNEL.search(name) is not None


def is_message(name: str) -> bool:
    """Whether the event of a processor is the time of a message itself (gloo, MPI, UCC)."""
    return _WIRE.match(name) is not None


def is_message_kernel(name: str) -> bool:
    """Whether a device kernel sends messages."""
    return _WIRE_KERNEL.search(name) is not None


def is_upload_copy(name: str) -> bool:
    """Whether a copy brings something from the host to a device (CUDA, ROCm)."""
    return "HtoD" in name or "HostToDevice" in name


def is_waiting(name: str) -> bool:
    """Whether an event of a processor hands over a message or waits for one."""
    return _WAITING.match(name) is not None


def is_wrapper(name: str) -> bool:
    """Whether an operation only holds others."""
    return _WRAPPER.match(name) is not None


def is_backward(name: str) -> bool:
    """Whether an operation is one node of the backward pass."""
    return _BACKWARD.match(name) is not None


def is_data(name: str) -> bool:
    """Whether an annotation is the loading of data."""
    return _DATA.match(_bare(name)) is not None


def is_own_step(name: str) -> bool:
    """Whether an annotation of a training loop is named after a whole step, and after no part of one."""
    is_part = is_data(name) or any(is_phase(phase, name) for phase in _PHASES)
    return _OWN_STEP.fullmatch(_bare(name)) is not None and not is_part


def is_phase(phase: str, name: str) -> bool:
    """Whether an annotation is one of forward, backward and optimizer."""
    return _PHASES[phase].match(_bare(name)) is not None


def _bare(name: str) -> str:
    """An annotation without the signs that some loops put around its words: ## backward ##."""
    return name.strip("#[]<>=- ")
