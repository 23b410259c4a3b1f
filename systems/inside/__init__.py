"""What runs inside the environments of other people's systems.

No file here imports anything of Mempiler.
"""
