package cdc_assets

import java.nio.file.Files
import java.nio.file.attribute.PosixFilePermissions

import org.apache.hadoop.fs.permission.FsPermission
import org.apache.hadoop.fs.{LocalFileSystem, Path, RawLocalFileSystem}

/** Hadoop's local file system, of which Java sets the permissions of files and folders.
  *
  * Without its native library Hadoop starts the command chmod for each file and folder that it makes: 40 in a small run.
  */
class LocalFiles extends LocalFileSystem(new LocalFiles.Raw)

object LocalFiles {

  class Raw extends RawLocalFileSystem {

    override def setPermission(path: Path, permission: FsPermission): Unit =
      if (permission.getStickyBit) super.setPermission(path, permission)
      else {
        val actions = Seq(permission.getUserAction, permission.getGroupAction, permission.getOtherAction)
        val told = PosixFilePermissions.fromString(actions.map(_.SYMBOL).mkString)
        Files.setPosixFilePermissions(pathToFile(path).toPath, told)
      }
  }
}
