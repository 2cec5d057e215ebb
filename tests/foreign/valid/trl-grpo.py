from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer
from trl.rewards import accuracy_reward

arguments = GRPOConfig(
    output_dir="out/grpo",
    per_device_train_batch_size=8,
    gradient_accumulation_steps=4,
    num_generations=8,
    max_completion_length=1024,
    learning_rate=1e-6,
    beta=0.0,
    bf16=True,
    use_vllm=True,
    vllm_mode="colocate",
    vllm_gpu_memory_utilization=0.3,
    max_steps=500,
    logging_steps=1,
)
GRPOTrainer(
    model="Qwen/Qwen2.5-1.5B-Instruct",
    reward_funcs=accuracy_reward,
    args=arguments,
    train_dataset=load_dataset("trl-lib/DeepMath-103K", split="train"),
).train()
