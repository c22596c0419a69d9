"""Which tools a run may see and which calls may go on: pure rules over configuration and scope."""
