"""Value types that every package may use. This package imports no other package of vecmill."""
