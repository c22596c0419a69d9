"""Where commands run that no person approved: confined by the kernel, a container or a machine."""
