"""The wheel's copy of data/ and notebooks/: all else about the build is in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithBook(build_py):
    """Also copies what an installed fedbook reads and a checkout has beside the package."""

    def run(self):
        super().run()
        if self.editable_mode:  # the checkout itself is read
            return
        place = Path(self.build_lib) / "fedbook" / "_shipped"
        shutil.rmtree(place, ignore_errors=True)
        for name in ("data", "notebooks"):
            unwanted = shutil.ignore_patterns(".*", "*.py", "*.toml", "__pycache__")
            shutil.copytree(Path(__file__).parent / name, place / name, ignore=unwanted)


setup(cmdclass={"build_py": BuildWithBook})
