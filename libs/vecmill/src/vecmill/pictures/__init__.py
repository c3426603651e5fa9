"""Pictures: how a model wants them, and their files made into pixels as transformers does, within limits."""
