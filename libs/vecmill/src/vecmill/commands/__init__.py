"""The commands of the `vecmill` program, one module or package for each."""
