"""Automation: jobs that run by themselves, and when."""
