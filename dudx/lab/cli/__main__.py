"""`python -m dudx.lab.cli` is `dudx`."""

from dudx.lab.cli import main

main()
