"""What two or more scripts share: the run-directory contract and the conventions of every CLI."""

VERSION = "0.2.0"
