"""vecmill on a Ray cluster: serving with Ray Serve, and embedding of large data sets with Ray Data."""
