"""Parts of probes.py: one file per thing that is measured. The contract is in contract.py, the list in catalogue.py."""
