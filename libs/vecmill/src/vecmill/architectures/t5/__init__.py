"""The encoder of T5."""
