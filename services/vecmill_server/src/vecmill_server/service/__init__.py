"""What the routes share: models by name, API keys, bodies, drain."""
