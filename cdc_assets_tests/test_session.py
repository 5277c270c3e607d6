"""What the session's settings do that no result shows."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_assets.session import hadoop_path


@pytest.mark.parametrize("permission", ["640", "755", "1777"])
def test_local_files_get_their_permissions(spark: SparkSession, tmp_path: Path, permission: str) -> None:
    """By this package's own class, which starts no command for it, but for the sticky bit, which Java cannot set."""
    place, conf = hadoop_path(spark, str(tmp_path / "made"))
    files = place.getFileSystem(conf)
    assert files.getClass().getName() == "cdc_assets.LocalFiles"
    assert files.mkdirs(place)
    files.setPermission(place, spark._jvm.org.apache.hadoop.fs.permission.FsPermission(permission))
    assert (tmp_path / "made").stat().st_mode & 0o7777 == int(permission, 8)
