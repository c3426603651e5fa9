"""The architectures with a built-in graph: a module of settings and one of graphs for each family."""
