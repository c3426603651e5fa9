"""RoBERTa, XLM-RoBERTa and CamemBERT."""
