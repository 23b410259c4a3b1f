"""Compile: teleprompters behind one interface."""
