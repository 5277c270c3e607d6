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

/** The log store of Google Cloud Storage.
  *
  * Generation 0 stands for a file that does not exist: with it Google's client sends the condition `ifGenerationMatch=0` and
  * does not check before. Delta's own log store lets the client check, and treats every refusal as another driver's commit.
  */
class GcsLogStore(conf: Configuration) extends GCSLogStore(conf) with ConditionalLogStore {

  override protected def put(files: FileSystem, path: Path, content: Array[Byte]): Boolean = {
    val store = files.asInstanceOf[GoogleHadoopFileSystem].getGcsFs.getGcs
    val file = new StorageResourceId(path.toUri.getAuthority, path.toUri.getPath.stripPrefix("/"), GcsLogStore.Absent)
    val upload: Callable[Boolean] = () => {
      val channel = store.create(file, CreateObjectOptions.DEFAULT_NO_OVERWRITE)
      // Closing completes the upload, so the channel is not closed after an error.
      channel.write(ByteBuffer.wrap(content))
      channel.close()
      true
    }
    // In a separate thread, as in Delta's own log store: an interrupted upload may leave a part of the file.
    try ThreadUtils.runInNewThread("cdc-assets-commit", true, upload)
    catch { case error: IOException if ApiErrorExtractor.INSTANCE.preconditionNotMet(error) => false }
  }
}

private object GcsLogStore {
  val Absent = 0L
}
