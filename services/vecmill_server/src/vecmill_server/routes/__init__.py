"""The routes, one module for each family of endpoints. `app` puts them together."""
