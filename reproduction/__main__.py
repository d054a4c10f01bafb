"""`python -m reproduction`."""

from reproduction.program import main

if __name__ == "__main__":  # worker processes import this module too
    main()
