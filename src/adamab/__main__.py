"""`python -m adamab` is the command `adamab`."""

from adamab.cli import main

main()
