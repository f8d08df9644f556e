"""A production run before it starts: its config and its place (plan), and what speaks against them (checks)."""
