"""`python -m dudx.lab.cli` is `dudx`."""

from dudx.lab.cli import main

if __name__ == "__main__":  # worker processes import this module too
    main()
