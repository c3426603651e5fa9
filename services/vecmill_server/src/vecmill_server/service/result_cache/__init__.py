"""The cache of results: finished embeddings in memory and on disk, so that no text is embedded twice."""
