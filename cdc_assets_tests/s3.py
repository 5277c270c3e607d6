"""Run an S3 server for the tests: moto's."""

import os
import sys
from typing import Any, ClassVar

from pyspark.sql import SparkSession

from cdc_assets_tests.store_server import BUCKET, Answers, StoreServer, serve

ACCESS_KEY, SECRET_KEY = "AKIDOFTHETESTS", "sk-9dQ2mVx7TzLw4"
PATIENCE = 5  # seconds that Hadoop waits for an answer


def shorten_timeouts(spark: SparkSession) -> None:
    """Let S3A wait for an answer less than 15 s, its lowest setting, by a method of S3A's own tests."""
    jvm: Any = spark._jvm
    shortest = jvm.java.time.Duration.ofSeconds(PATIENCE)
    jvm.org.apache.hadoop.fs.s3a.impl.AWSClientConfig.setMinimumOperationDuration(shortest)


class S3Server(StoreServer):
    module = __name__
    root = f"s3a://{BUCKET}"
    no_bucket = "NoSuchBucket"
    options: ClassVar = {"fs.s3a.connection.timeout": f"{PATIENCE}s"}

    def __init__(self) -> None:
        super().__init__()
        # Set before the JVM starts, which inherits them.
        os.environ |= {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}


def main(port: int) -> None:
    import boto3  # noqa: PLC0415 -- which only this process needs
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app  # noqa: PLC0415

    client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1")
    answers = Answers(DomainDispatcherApplication(create_backend_app))
    serve(port, answers, lambda: client.create_bucket(Bucket=BUCKET))


if __name__ == "__main__":
    main(int(sys.argv[1]))
