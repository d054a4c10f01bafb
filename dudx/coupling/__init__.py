"""Networks whose samples influence each other: isolate them, explain them."""
