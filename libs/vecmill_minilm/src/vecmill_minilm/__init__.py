"""The model all-MiniLM-L6-v2, in the folder `model`. vecmill finds it without importing this package."""
