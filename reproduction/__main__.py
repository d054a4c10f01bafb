"""`python -m reproduction`."""

from reproduction.program import main

main()
