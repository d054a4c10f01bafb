"""Heat in a plate with 17 round holes that warm it."""

from dudx.lab import Box, Disc, Initial, Interval, Problem, Robin

TITLE = "Heat2d-CG"
BIG = [(x, y) for x in (-4, 4) for y in (-9, -3, 3, 9)] + [(0, -6), (0, 0), (0, 6)]
SMALL = [(x, y) for x in (-3.2, 3.2) for y in (-6, 0, 6)]

big, small = [Disc(center, 1) for center in BIG], [Disc(center, 0.4) for center in SMALL]
plate = Box((-8, -12), (8, 12))
for hole in big + small:
    plate = plate - hole

problem = Problem(
    lambda u: u.t - u.xx - u.yy,
    inputs=("x", "y", "t"),
    domain=plate * Interval(0, 3),
    conditions=[
        Robin(a=1.0, g=5.0, on=big),
        Robin(a=1.0, g=1.0, on=small),
        Robin(a=1.0, g=0.1, on="outside"),
        Initial(u=0.0),
    ],
    title=TITLE,
)
