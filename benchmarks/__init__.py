"""Timings: against peers, against limits, and of the ways to train. The package imports nothing from here."""
