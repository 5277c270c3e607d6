package cdc_assets

import java.nio.file.{Files, Path => File}
import java.util.{UUID, Iterator => Lines}

import scala.jdk.CollectionConverters._

import io.delta.storage.HDFSLogStore
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

/** Delta's log in a local folder, safe for any number of drivers: a commit gets its name by a hard link, which is refused if
  * there is one of that name.
  *
  * Delta's own log store there looks first and renames then, as renaming would replace what is there, and so is safe within
  * one JVM alone.
  */
class LinkingLogStore(conf: Configuration) extends HDFSLogStore(conf) {

  override def write(path: Path, actions: Lines[String], overwrite: java.lang.Boolean, conf: Configuration): Unit =
    if (overwrite) super.write(path, actions, overwrite, conf)
    else {
      val commit = File.of(path.toUri.getPath)
      val written = commit.resolveSibling(s".${commit.getFileName}.${UUID.randomUUID}.tmp")
      try {
        Files.write(written, actions.asScala.to(Iterable).asJava)
        Files.createLink(commit, written) // throws FileAlreadyExistsException, as is asked of a log store
      } finally Files.deleteIfExists(written)
    }
}
