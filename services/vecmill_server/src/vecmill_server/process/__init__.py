"""The life of the process: start, listening, loading, several processes, stop."""
