"""BERT with rotary position embeddings: NomicBERT and GTE."""
