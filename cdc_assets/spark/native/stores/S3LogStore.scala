package cdc_assets

import io.delta.storage.S3SingleDriverLogStore
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileSystem, Path}
import org.apache.hadoop.fs.s3a.RemoteFileChangedException

/** The log store of S3.
  *
  * Delta's own log store for S3 checks for a commit and then writes it, so it is safe within one driver only. Hadoop's S3A
  * (3.4.2) writes conditionally only for a file that is created by its builder with the option below.
  */
class S3LogStore(conf: Configuration) extends S3SingleDriverLogStore(conf) with ConditionalLogStore {

  override protected def put(files: FileSystem, path: Path, content: Array[Byte]): Boolean = {
    val file = files.createFile(path).recursive().overwrite(false)
    val stream = file.must("fs.option.create.conditional.overwrite", true).build()
    stream.write(content)
    try { stream.close(); true }
    catch { case _: RemoteFileChangedException => false }
  }
}
