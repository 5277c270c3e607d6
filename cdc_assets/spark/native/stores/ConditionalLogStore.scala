package cdc_assets

import java.io.ByteArrayOutputStream
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.FileAlreadyExistsException
import java.util.{Arrays, Iterator => Lines}

import scala.util.Using

import io.delta.storage.LogStore
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileSystem, Path}

/** A log store of an object store, safe with several drivers: it writes a commit by one request, which the store refuses if
  * the commit exists.
  */
trait ConditionalLogStore extends LogStore {

  /** Write a file by one conditional request, without a check before. Return false if the store refuses it. */
  protected def put(files: FileSystem, path: Path, content: Array[Byte]): Boolean

  abstract override def write(path: Path, lines: Lines[String], overwrite: java.lang.Boolean, conf: Configuration): Unit =
    if (overwrite) super.write(path, lines, overwrite, conf)
    else {
      val bytes = new ByteArrayOutputStream
      lines.forEachRemaining(line => bytes.write((line + "\n").getBytes(UTF_8)))
      val (files, content) = (path.getFileSystem(conf), bytes.toByteArray)
      // After a lost answer the client sends the request again: then the existing commit is this one.
      if (!put(files, path, content) && !Arrays.equals(content, read(files, path)))
        throw new FileAlreadyExistsException(path.toString)
    }

  private def read(files: FileSystem, path: Path): Array[Byte] = Using.resource(files.open(path))(_.readAllBytes())
}
