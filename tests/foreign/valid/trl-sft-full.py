from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

trainer = SFTTrainer(
    model="Qwen/Qwen3-0.6B",
    args=SFTConfig(
        output_dir="out/sft",
        model_init_kwargs={"dtype": "bfloat16", "attn_implementation": "flash_attention_2"},
        max_length=2048,
        packing=True,
        per_device_train_batch_size=8,
        learning_rate=2e-5,
        num_train_epochs=1,
        bf16=True,
        activation_checkpointing=True,
        assistant_only_loss=True,
    ),
    train_dataset=load_dataset("trl-lib/Capybara", split="train"),
)
trainer.train()
