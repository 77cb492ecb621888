"""Text without tensors: tokenizer, incremental decoding, prompts, channels."""
