"""The machine's cores, their topology, the processor and the memory."""
