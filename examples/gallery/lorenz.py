"""The Lorenz system in its chaotic regime."""

from dudx.lab import Initial, Interval, Problem

problem = Problem(
    lambda a, b, c: (a.t - 10 * (b - a), b.t - a * (28 - c) + b, c.t - a * b + 8 / 3 * c),
    inputs=("t",),
    domain=Interval(0, 3),
    conditions=[Initial(a=-8.0, b=7.0, c=27.0)],
    title="Lorenz",
)
