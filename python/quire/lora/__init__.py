"""LoRA adapters: vLLM's vllm.lora."""
