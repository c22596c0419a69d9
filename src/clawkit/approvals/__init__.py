"""Whether, where and with which access a command may run."""
