"""The data sets of the paper, and cells."""
