"""How the suite reads what a language model wrote: tolerant of form, strict about content, all mends counted."""
