"""Confinement of commands that no person approved: by the kernel, a container or another
machine."""
