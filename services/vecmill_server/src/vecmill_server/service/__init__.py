"""What the routes share: the service with its parts, API keys, bodies, the cache, the phases of a stop."""
