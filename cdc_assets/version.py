"""The version of the package that is running."""

import hashlib
from functools import cache
from importlib.metadata import version
from pathlib import Path


@cache
def code_version() -> str:
    """Return the package's version and a digest of its Python and Scala code: any edit of the code changes the digest."""
    package = Path(__file__).parent
    files = sorted(path for suffix in ("py", "scala") for path in package.rglob(f"*.{suffix}"))
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()
    return f"{version('cdc-assets')}+{digest[:12]}"


def software_versions() -> dict[str, str]:
    """Return the versions of this package and of what it reads and writes tables with."""
    return {"cdc-assets": code_version()} | {name: version(name) for name in ("pyspark", "delta-spark")}
