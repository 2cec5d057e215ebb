from megatron.bridge import AutoBridge
from megatron.bridge.peft.lora import LoRA
from megatron.bridge.recipes.common import _peft_common
from megatron.bridge.training.finetune import finetune
from megatron.bridge.training.gpt_step import forward_step

SEQUENCE = 4096
cfg = _peft_common()
cfg.model = AutoBridge.from_hf_pretrained("Qwen/Qwen3-8B").to_megatron_provider(load_weights=False)
cfg.tokenizer.tokenizer_model = "Qwen/Qwen3-8B"
cfg.model.tensor_model_parallel_size = 1
cfg.model.seq_length = SEQUENCE
cfg.dataset.seq_length = SEQUENCE
cfg.peft = LoRA(target_modules=["linear_qkv", "linear_proj"], dim=16, alpha=32)
cfg.train.micro_batch_size = 2
cfg.train.global_batch_size = 32
cfg.train.train_iters = 1000
cfg.checkpoint.pretrained_checkpoint = "/checkpoints/qwen3_8b"
finetune(cfg, forward_step)
