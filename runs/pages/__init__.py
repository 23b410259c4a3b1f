"""What people are shown of a run.

page.py         the page of a run: its evaluations, and the tables that are computed from them
facts.py        lines on what scores rest on, and on what calls took
questions.py    one question with its answers and prompts, as JSON
html.py         the page as an HTML file; report.html, report.css and report.js draw it
text.py         the page as lines and tables for terminals
"""
