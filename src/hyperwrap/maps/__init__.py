"""Maps that keep neighbours: a table's nearest-neighbour graph, laid out in hyperbolic space."""
