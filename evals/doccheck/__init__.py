"""Checks that keep the documents and the code in step. Each returns sentences; nothing stops at the first."""
