"""Several server processes on one listening socket: their supervisor, and what they share."""
