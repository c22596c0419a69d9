"""`python -m clawkit`."""

from clawkit.cli.start import run

if __name__ == "__main__":
    run()
