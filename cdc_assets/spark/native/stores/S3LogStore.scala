package cdc_assets

import io.delta.storage.S3SingleDriverLogStore
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileSystem, Path}
import org.apache.hadoop.fs.s3a.RemoteFileChangedException

/** Delta's log on S3.
  *
  * Delta's own log store for S3 looks first and writes then, and so is safe within one driver alone; and Hadoop's S3A (3.4.2)
  * writes conditionally only when a file is made by its builder, and asked to.
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
