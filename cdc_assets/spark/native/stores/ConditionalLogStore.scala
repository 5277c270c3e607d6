package cdc_assets

import java.io.ByteArrayOutputStream
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.FileAlreadyExistsException
import java.util.{Arrays, Iterator => Lines}

import scala.util.Using

import io.delta.storage.LogStore
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileSystem, Path}

/** Delta's log in an object store, safe for any number of drivers: a commit is written by one request, which the store refuses
  * if it is there.
  */
trait ConditionalLogStore extends LogStore {

  /** Write a file by one such request, without a look whether it is there. Returns whether it was written; false: refused. */
  protected def put(files: FileSystem, path: Path, content: Array[Byte]): Boolean

  abstract override def write(path: Path, lines: Lines[String], overwrite: java.lang.Boolean, conf: Configuration): Unit =
    if (overwrite) super.write(path, lines, overwrite, conf)
    else {
      val bytes = new ByteArrayOutputStream
      lines.forEachRemaining(line => bytes.write((line + "\n").getBytes(UTF_8)))
      val (files, content) = (path.getFileSystem(conf), bytes.toByteArray)
      // What is there may be this very commit, whose answer was lost, so that the client sent it again.
      if (!put(files, path, content) && !Arrays.equals(content, read(files, path)))
        throw new FileAlreadyExistsException(path.toString)
    }

  private def read(files: FileSystem, path: Path): Array[Byte] = Using.resource(files.open(path))(_.readAllBytes())
}
