"""Fused GPU kernels (Triton) behind the functions of the library; never imported without a GPU."""
