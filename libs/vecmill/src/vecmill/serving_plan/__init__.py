"""The plan of a served model: engine, precision and device, from `vecmill optimize` or the config."""
