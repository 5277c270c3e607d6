"""Amazon S3 and stores with its protocol."""

import os
from functools import cache

from pyarrow.fs import FileSystem, S3FileSystem

from cdc_assets.config import Storage
from cdc_assets.stores.base import ObjectStore
from cdc_assets.stores.jars import S3_JARS

# Spark passes credentials of the driver's environment to the executors; without them each process asks the platform.
_CREDENTIALS = (
    "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
)


class _S3(ObjectStore):
    schemes = ("s3", "s3a")
    log_store = "S3LogStore"
    own_jars = S3_JARS
    condition = "PUT with If-None-Match: *"

    def files(self, location: str, settings: Storage) -> tuple[FileSystem, str]:
        return _file_system(settings.endpoint, _region(settings), settings.path_style), location.partition("://")[2]

    def deltalake_options(self, location: str, settings: Storage) -> dict[str, str]:  # noqa: ARG002 -- the same everywhere
        endpoint, region = settings.endpoint, _region(settings)
        return {
            # deltalake's default, set because an unconditional commit would overwrite that of another run.
            "aws_conditional_put": "etag",
            "aws_virtual_hosted_style_request": str(not settings.path_style).lower(),
            **(
                {"aws_endpoint_url": endpoint, "aws_allow_http": str(endpoint.startswith("http:")).lower()}
                if endpoint
                else {}
            ),
            **({"aws_region": region} if region else {}),
        }

    def hadoop_settings(self, settings: Storage) -> dict[str, str]:
        region = _region(settings)
        return {
            "fs.s3a.path.style.access": str(settings.path_style).lower(),
            "fs.s3a.aws.credentials.provider": ",".join(_CREDENTIALS),
            **({"fs.s3a.endpoint": settings.endpoint} if settings.endpoint else {}),
            **({"fs.s3a.endpoint.region": region} if region else {}),
        }


S3 = _S3()


def _region(settings: Storage) -> str | None:
    region = settings.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    # Stores other than Amazon's have no regions, but the clients require one.
    return region or ("us-east-1" if settings.endpoint else None)


@cache
def _file_system(endpoint: str | None, region: str | None, path_style: bool) -> S3FileSystem:  # noqa: FBT001 -- private
    scheme, _, host = (endpoint or "https://").partition("://")
    return S3FileSystem(
        endpoint_override=host or None, scheme=scheme, region=region, force_virtual_addressing=not path_style
    )
