"""The cells of a sweep: what they are (plan), what happened to them (ledger), what became of them (judge)."""

MARK = "RGT_CELL"  # in the environment of every process of an attempt, and in its run.json
