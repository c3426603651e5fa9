"""The embedding cache of a server, in memory and on disk, so that no text is embedded twice."""
