"""Problems for all peers, and rows of matrix products per point by method.

Workers import this module in environments with only numpy and the peer, so it imports nothing.
"""

from __future__ import annotations

NU = 0.01 / 3.141592653589793

#: The number of inputs. Columns: Poisson and biharmonic x, y; Burgers x, t; heat x, y, t.
INPUTS = {"poisson": 2, "burgers": 2, "heat": 3, "laplacian-10": 10, "laplacian-100": 100, "biharmonic": 2}

#: Number of leading columns of the Laplacian; the column of t, if any, is the last.
SPATIAL = INPUTS | {"burgers": 1, "heat": 2}


def streams(method: str, problem: str) -> int:
    """Return the rows per point in the product with a hidden layer's weights.

    They occur in the forward pass and in the backward pass for each of two gradients (layer input, weights).

    Taylor propagates the value, one first derivative per direction, and the operator: d + 2 for a Laplacian. Burgers
    needs no separate stream for u_x, and u_t is part of an operator. The biharmonic operator takes the value, the two
    first derivatives, the three second ones, the two of the Laplacian, and itself.

    FD evaluates the network at the centre and two points an axis; the biharmonic operator has 13 points.

    AD counts products with B rows. The network is 1 and its gradient another 1 (only the inputs' gradient is taken, so
    there is no product for the weights'). A further gradient runs backward through everything its argument was made
    of: that of a derivative of order p through the 2^p products of that derivative. A Laplacian so takes 1 + 1 + 2d
    products; u_t comes with the first gradient. The biharmonic operator takes the gradients of u, of u_x and u_y, of
    u_xx and u_yy, and of u_xxx, u_xxy and u_yyy: 1 + 1 + 2·2 + 2·4 + 3·8. The loss's gradient in the parameters then
    runs backward through all of these products once, two products for each, just as it does for rows.
    """
    if problem == "biharmonic":
        return {"Taylor": 9, "FD": 13, "AD": 38}[method]
    spatial = SPATIAL[problem]
    return {"Taylor": spatial + 2, "FD": 2 * INPUTS[problem] + 1, "AD": 2 + 2 * spatial}[method]
