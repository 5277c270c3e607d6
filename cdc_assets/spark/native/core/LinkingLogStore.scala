package cdc_assets

import java.nio.file.{Files, Path => File}
import java.util.{UUID, Iterator => Lines}

import scala.jdk.CollectionConverters._

import io.delta.storage.HDFSLogStore
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

/** The log store of local folders, safe with several drivers: a commit gets its name by a hard link, which fails if the name
  * exists.
  *
  * Delta's own log store checks for the commit and then renames a file, which would replace a commit written meanwhile: it is
  * safe within one JVM only.
  */
class LinkingLogStore(conf: Configuration) extends HDFSLogStore(conf) {

  override def write(path: Path, actions: Lines[String], overwrite: java.lang.Boolean, conf: Configuration): Unit =
    if (overwrite) super.write(path, actions, overwrite, conf)
    else {
      val commit = File.of(path.toUri.getPath)
      val temporary = commit.resolveSibling(s".${commit.getFileName}.${UUID.randomUUID}.tmp")
      try {
        Files.write(temporary, actions.asScala.to(Iterable).asJava)
        Files.createLink(commit, temporary) // throws FileAlreadyExistsException, as LogStore.write must
      } finally Files.deleteIfExists(temporary)
    }
}
