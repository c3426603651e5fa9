"""The routes, one module for each group of endpoints; `app` combines them."""
