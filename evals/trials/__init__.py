"""Does the skill help an agent? Cases, their proofs without a model, trials with one, and what came of them."""
