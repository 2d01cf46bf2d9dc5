"""The version, alone in a file so that the build and ``dagrun --version`` read it without loading anything else."""

__version__ = "0.2.0"
