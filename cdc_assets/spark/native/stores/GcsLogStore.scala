package cdc_assets

import java.io.IOException
import java.nio.ByteBuffer
import java.util.concurrent.Callable

import com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem
import com.google.cloud.hadoop.repackaged.gcs.com.google.cloud.hadoop.gcsio.{CreateObjectOptions, StorageResourceId}
import com.google.cloud.hadoop.repackaged.gcs.com.google.cloud.hadoop.util.ApiErrorExtractor
import io.delta.storage.GCSLogStore
import io.delta.storage.internal.ThreadUtils
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileSystem, Path}

/** Delta's log in Google Cloud Storage.
  *
  * A file of generation 0 is one that is not there: so Google's client sends the condition (`ifGenerationMatch=0`) and does not
  * look before, as it does for Delta's own log store, which takes a refusal for another's commit in any case.
  */
class GcsLogStore(conf: Configuration) extends GCSLogStore(conf) with ConditionalLogStore {

  override protected def put(files: FileSystem, path: Path, content: Array[Byte]): Boolean = {
    val store = files.asInstanceOf[GoogleHadoopFileSystem].getGcsFs.getGcs
    val file = new StorageResourceId(path.toUri.getAuthority, path.toUri.getPath.stripPrefix("/"), GcsLogStore.Absent)
    val upload: Callable[Boolean] = () => {
      val channel = store.create(file, CreateObjectOptions.DEFAULT_NO_OVERWRITE)
      // To close it is to have it written: not after an error.
      channel.write(ByteBuffer.wrap(content))
      channel.close()
      true
    }
    // In a thread of its own, as Delta does it: an upload that is interrupted may end as a part of the file.
    try ThreadUtils.runInNewThread("cdc-assets-commit", true, upload)
    catch { case error: IOException if ApiErrorExtractor.INSTANCE.preconditionNotMet(error) => false }
  }
}

private object GcsLogStore {
  val Absent = 0L
}
