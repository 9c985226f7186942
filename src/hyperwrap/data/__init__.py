"""Data sets, one a file: where they come from, what they hold, and the tensors made of them."""
