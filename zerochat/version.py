"""The version in pyproject.toml; repeated here, as a lookup in the package metadata is slow."""

__version__ = "0.1.0"
