"""Nagano et al. (ICML 2019), reproduced with hyperwrap: experiments, figures, tables, data."""
