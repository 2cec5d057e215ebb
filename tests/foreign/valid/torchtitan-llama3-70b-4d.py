"""Llama 3.1 70B on 128 devices: two replicas of two shards, tensor and pipeline parallel."""

from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import SelectiveAC
from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader
from torchtitan.models.common.config_utils import decoder_vocab_size
from torchtitan.models.llama3 import model_registry
from torchtitan.trainer import Trainer

MICRO_BATCHES = 8


def llama3_70b_4d() -> Trainer.Config:
    model_spec = model_registry("70B")
    return Trainer.Config(
        model_spec=model_spec,
        hf_assets_path="./assets/hf/Llama-3.1-70B",
        loss=ChunkedLossWrapper.Config(
            loss_fn=CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(model_spec))
        ),
        optimizer=default_adamw(lr=1.5e-4),
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=1000, decay_type="cosine"),
        training=TrainingConfig(
            local_batch_size=MICRO_BATCHES,
            global_batch_size=MICRO_BATCHES * 4 * 4,
            seq_len=8192,
            steps=10000,
            disable_cuda_graphs=True,
        ),
        dataloader=HuggingFaceTextDataLoader.Config(dataset="c4"),
        parallelism=ParallelismConfig(
            data_parallel_replicate_degree=2,
            data_parallel_shard_degree=2,
            tensor_parallel_degree=8,
            pipeline_parallel_degree=4,
            pipeline_parallel_schedule="Interleaved1F1B",
        ),
        compile=CompileConfig(enable=True, enable_async_tensor_parallel=True),
        activation_checkpoint=SelectiveAC.Config(),
    )
