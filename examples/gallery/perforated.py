"""A plate with a round hole under tension: plane stress in the quarter that symmetry leaves."""

from dudx.lab import Box, Dirichlet, Disc, Equation, Problem

PULL, RADIUS = 0.1, 0.3
#: Lamé's constants of plane stress for Young's modulus 1 and Poisson's ratio 0.3.
SHEAR, DILATION = 1 / 2.6, 0.3 / (1 - 0.3**2)
HOLE = Disc((0, 0), RADIUS)


def stress(u, v):
    """Return the stresses xx, yy and xy."""
    spread = DILATION * (u.x + v.y)
    return spread + 2 * SHEAR * u.x, spread + 2 * SHEAR * v.y, SHEAR * (u.y + v.x)


def balance(u, v):
    """Return the forces per area along x and y."""
    both = SHEAR + DILATION
    return both * (u.xx + v.xy) + SHEAR * (u.xx + u.yy), both * (u.xy + v.yy) + SHEAR * (v.xx + v.yy)


def traction(u, v, n):
    """Return the forces on a surface with the normals n."""
    xx, yy, xy = stress(u, v)
    return xx * n[:, :1] + xy * n[:, 1:], xy * n[:, :1] + yy * n[:, 1:]


def pulled(u, v, n):
    """Return the forces on the right edge beside the pull."""
    along, across = traction(u, v, n)
    return along - PULL, across


problem = Problem(
    balance,
    inputs=("x", "y"),
    domain=Box((0, 0), (1, 1)) - HOLE,
    conditions=[
        Dirichlet(u=0.0, on="left"),
        Dirichlet(v=0.0, on="bottom"),
        Equation(lambda u, v: u.y + v.x, on=["left", "bottom"], name="symmetry"),
        Equation(pulled, on="right", name="pull"),
        Equation(traction, on=["top", HOLE], name="free"),
    ],
    title="Plate with a hole under tension",
)
