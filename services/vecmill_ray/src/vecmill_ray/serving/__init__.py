"""Serving with Ray Serve: one deployment for each model, and one HTTP address for all."""
