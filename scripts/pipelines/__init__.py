"""Pretraining pipelines: what `scaffold_training` plans and writes, and what a written pipeline uses while it trains.

budget       how large a model and a batch fit the card, how long it takes, what it costs
settings     training_config.yaml and the phases: made, read, checked
tokens       token files on disk, and which tokens a step sees
ledger       checkpoints: which are good, the index, what is kept
progress     events, verdicts on phases, training_status.md
"""
