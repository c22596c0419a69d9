"""Automation: jobs that run on a schedule or on events."""
