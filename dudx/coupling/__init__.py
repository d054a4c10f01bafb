"""Isolate networks whose samples influence each other."""
