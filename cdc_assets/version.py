"""Which version of this package runs."""

import hashlib
from functools import cache
from importlib.metadata import version
from pathlib import Path


@cache
def code_version() -> str:
    """Return the package's version and a digest of its code, which differs as soon as any line of it does."""
    package = Path(__file__).parent
    code = sorted(path for kind in ("py", "scala") for path in package.rglob(f"*.{kind}"))
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in code)).hexdigest()
    return f"{version('cdc-assets')}+{digest[:12]}"
