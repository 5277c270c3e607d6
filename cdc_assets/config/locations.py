"""Locations of tables and files: local paths and URIs."""

import os
import re

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
# deltalake finds the Azure account in a server name of this form only.
_AZURE = re.compile(r"abfss?://[^@/:]+@[^@/:.]+\.dfs\.core\.windows\.net(/|$)")
AZURE_FORM = "abfss://container@account.dfs.core.windows.net/folder"
# `s3` and `s3a` address the same objects; Hadoop knows `s3a` only.
S3 = "s3a"
HDFS = "hdfs"
AZURE = ("abfs", "abfss")
SCHEMES = ("s3", S3, "gs", *AZURE, HDFS, "file")
ALLOWED = f"a local folder, or a URI of {', '.join(f'{scheme}://' for scheme in SCHEMES)}"


class LocationError(ValueError):
    """A location that cannot be used; the message is one line."""


def canonical_location(location: str) -> str:
    """Return a location in its one stored form: local paths absolute, `s3://` as `s3a://`, without a slash at the end.

    Raises:
        LocationError: the URI has a scheme outside `SCHEMES`, or is an Azure URI without container and account.
    """
    scheme = scheme_of(location)
    if not scheme:
        return os.path.abspath(location)  # noqa: PTH100 -- Path.resolve would replace symbolic links
    if scheme not in SCHEMES:
        raise LocationError(f"{location}: allowed is {ALLOWED}")
    if scheme in AZURE and not _AZURE.match(location):
        raise LocationError(f"{location}: allowed is {AZURE_FORM}")
    if scheme == "s3":
        location = S3 + location[len(scheme) :]
    return location.rstrip("/")


def scheme_of(location: str) -> str:
    """Return the scheme of a URI in lower case; "" for a local path."""
    match = _SCHEME.match(location)
    return match[1].lower() if match else ""
