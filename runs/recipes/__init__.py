"""Recipes: the tables of a paper beside ours, never mixed."""
