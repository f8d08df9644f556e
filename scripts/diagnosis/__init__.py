"""triage's parts: the catalogue (from the markdown), the scan of a log, and the verdict."""
