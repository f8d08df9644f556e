"""Numbers in documents, and the claim each of them states. reconcile.py is the front door.

readers/     a file -> passages (running text) and tables, each with its line
numerals.py  a passage -> the numbers that could be results, and how they are written
cues.py      what the words right before a number make of it
terms.py     the words of EVIDENCE.json (metric, method, dataset, split) as found in a text
evidence.py  the claims, found by whatever terms a text gives
align.py     which word belongs to which number of a sentence
sentences.py, cells.py   a number and the words around it -> the claims it may state
judge.py, verdict.py     does it agree: rounding, percent, spread, number of runs, direction
"""
