"""Parses what a language model wrote: tolerant of form, strict about content; all repairs are counted."""
