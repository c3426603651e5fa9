"""Gemma 3, text only."""
