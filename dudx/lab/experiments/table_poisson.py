"""Poisson's equation on a square with four holes."""

from dudx.lab.experiments.accuracy import experiment

EXPERIMENT = experiment("poisson")
