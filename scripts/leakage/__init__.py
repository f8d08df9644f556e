"""The parts of leak_probe: reading splits, normalising items, and finding the same item twice."""
