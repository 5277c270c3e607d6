package cdc_assets

import java.io.ByteArrayOutputStream
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.FileAlreadyExistsException
import java.util.{Arrays, Iterator => Lines}

import scala.util.Using

import io.delta.storage.S3SingleDriverLogStore
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileSystem, Path}
import org.apache.hadoop.fs.s3a.RemoteFileChangedException

/** Delta's log on S3, safe for any number of drivers: a commit is written by a PUT that the store refuses if it is there.
  *
  * Delta's own log store for S3 looks first and writes then, and so is safe within one driver alone; and Hadoop's S3A (3.4.2)
  * writes conditionally only when a file is made by its builder, and asked to.
  */
class ConditionalLogStore(conf: Configuration) extends S3SingleDriverLogStore(conf) {

  override def write(path: Path, actions: Lines[String], overwrite: java.lang.Boolean, conf: Configuration): Unit =
    if (overwrite) super.write(path, actions, overwrite, conf)
    else {
      val lines = new ByteArrayOutputStream
      actions.forEachRemaining(line => lines.write((line + "\n").getBytes(UTF_8)))
      val content = lines.toByteArray
      val files = path.getFileSystem(conf)
      val file = files.createFile(path).recursive().overwrite(false)
      val stream = file.must("fs.option.create.conditional.overwrite", true).build()
      stream.write(content)
      try stream.close()
      catch {
        // Refused: there is one. It may be this very commit, whose answer was lost, so that S3A sent it again.
        case _: RemoteFileChangedException =>
          if (!Arrays.equals(content, read(files, path))) throw new FileAlreadyExistsException(path.toString)
      }
    }

  private def read(files: FileSystem, path: Path): Array[Byte] = Using.resource(files.open(path))(_.readAllBytes())
}
