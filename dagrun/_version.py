"""The version, alone in a file so that the build and ``dagrun --version`` read it without loading anything else."""

__version__ = "0.1.0"
