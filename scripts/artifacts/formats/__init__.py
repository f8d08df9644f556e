"""Readers: from bytes of unknown origin to tensors with names and places."""
