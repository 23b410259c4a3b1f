"""The packages of the wheel.

The repository's root is the package, so every folder with code in it is a package of its own. They
are found rather than listed, so that a method or a benchmark is added by adding its folder.
"""

from setuptools import find_packages, setup

OUTSIDE = ["tests*", "perf*", "docs*", "build*", "dist*"]
"""Folders of the repository that are not installed."""

ROOMS = find_packages(exclude=OUTSIDE)

# Named, so that it is not taken for a module of the package at the root.
setup(
    script_name="setup.py",
    package_dir={"mempiler": "."},
    packages=["mempiler", *(f"mempiler.{room}" for room in ROOMS)],
)
