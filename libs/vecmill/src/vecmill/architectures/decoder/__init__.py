"""Decoder-only transformers: the code that Mistral, Qwen 2 and 3 and Gemma 3 share."""
