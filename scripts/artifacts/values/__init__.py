"""The one pass over the bytes, and what its statistics mean."""
