"""Norms and attention written out once: for tensors under AD, for jets, and for samples that are isolated."""
