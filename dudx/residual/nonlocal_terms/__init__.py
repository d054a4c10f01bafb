"""Terms that evaluate the network away from the collocation points."""
