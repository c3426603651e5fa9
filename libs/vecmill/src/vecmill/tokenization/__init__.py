"""Turns texts and pairs of texts into token ids, as the model's own tokenizer does."""
