"""Experiments, artifacts, tracking and reports."""
