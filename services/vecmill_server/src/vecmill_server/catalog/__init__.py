"""Which models are served: their names, what each is served with, which are in memory, and their loads."""
