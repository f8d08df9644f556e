"""What is made from EVIDENCE.json, and what is read back from it. render.py is the front door.

digits.py       a claim -> its number as text: digits from the spread, percent, LaTeX
tables.py       claims -> one grid of cells -> Markdown, LaTeX, CSV
macros.py, values.py    claims -> \\newcommand lines, numbers between the markers of documents
sources.py      the runs of a figure's claims -> the rows of source_data.csv
figures.py      source_data.csv -> figure.py -> png, pdf, svg and the sidecar; what changed since
inspection.py   the written files, opened again
drawing.py      the svg -> panels, ticks, legend and marks; pdf.py: the same marks in the pdf
readback.py     marks back into numbers, against source_data.csv
pixels.py       the png: blank, clipped, its size, the marks' colours; colours.py: who can tell them apart
disclosures.py  the checklist of every number; page.py: all of it as one HTML page
"""
