"""Incidents from the alarm to the end."""
