"""`python -m clawkit`."""

from clawkit.cli.main import run

if __name__ == "__main__":
    run()
