"""Computation of the reference solutions that the package stores: `python -m reproduction.references`."""
