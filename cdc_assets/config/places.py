"""Places of tables and files: local paths and URIs."""

import os
import re

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
# Its account is known by the server's name, which deltalake takes in this form alone.
_AZURE = re.compile(r"abfss?://[^@/:]+@[^@/:.]+\.dfs\.core\.windows\.net(/|$)")
AZURE_FORM = "abfss://container@account.dfs.core.windows.net/folder"
# `s3` and `s3a` name the same places; this is Hadoop's name.
S3 = "s3a"
HDFS = "hdfs"
AZURE = ("abfs", "abfss")
SCHEMES = ("s3", S3, "gs", *AZURE, HDFS, "file")
ALLOWED = f"a local folder, or a URI of {', '.join(f'{scheme}://' for scheme in SCHEMES)}"


class PlaceError(ValueError):
    """A place that cannot be used; the message is one line."""


def canonical(place: str) -> str:
    """A place in the one form in which it is kept: local paths absolute, `s3://` as `s3a://`, no slash at the end.

    Raises:
        PlaceError: it is a URI of another scheme than `SCHEMES`, or one of Azure that names no container and account.
    """
    scheme = scheme_of(place)
    if not scheme:
        return os.path.abspath(place)  # noqa: PTH100 -- links stay
    if scheme not in SCHEMES:
        raise PlaceError(f"{place}: allowed is {ALLOWED}")
    if scheme in AZURE and not _AZURE.match(place):
        raise PlaceError(f"{place}: allowed is {AZURE_FORM}")
    if scheme == "s3":
        place = S3 + place[len(scheme) :]
    return place.rstrip("/")


def scheme_of(place: str) -> str:
    """The scheme of a URI, in lower case; "" of a local path."""
    found = _SCHEME.match(place)
    return found[1].lower() if found else ""
