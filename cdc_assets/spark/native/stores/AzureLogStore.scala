package org.apache.hadoop.fs.azurebfs.services {

  import org.apache.hadoop.fs.azurebfs.constants.{AbfsHttpConstants, HttpHeaderConfigurations}
  import org.apache.hadoop.fs.azurebfs.extensions.SASTokenProvider.CREATE_FILE_OPERATION
  import org.apache.hadoop.fs.azurebfs.utils.TracingContext

  /** What Hadoop's client (3.4.2) can, and keeps to its own package: Azure's Put Blob with a content. */
  object WholeBlob {

    def putIfAbsent(client: AbfsBlobClient, path: String, content: Array[Byte], context: TracingContext): Unit = {
      val headers = client.createDefaultHeaders()
      headers.add(new AbfsHttpHeader(HttpHeaderConfigurations.X_MS_BLOB_TYPE, AbfsHttpConstants.BLOCK_BLOB_TYPE))
      headers.add(new AbfsHttpHeader(HttpHeaderConfigurations.IF_NONE_MATCH, AbfsHttpConstants.STAR))
      val query = client.createDefaultUriQueryBuilder()
      client.appendSASTokenToQuery(path, CREATE_FILE_OPERATION, query)
      val url = client.createRequestUrl(path, query.toString)
      val put = AbfsRestOperationType.PutBlob
      client.getAbfsRestOperation(put, AbfsHttpConstants.HTTP_METHOD_PUT, url, headers, content, 0, content.length, null)
        .execute(context)
    }
  }
}

package cdc_assets {

  import java.net.HttpURLConnection.{HTTP_CONFLICT, HTTP_PRECON_FAILED}
  import java.util.UUID

  import io.delta.storage.{AzureLogStore => DeltasLogStore}
  import org.apache.hadoop.conf.Configuration
  import org.apache.hadoop.fs.azurebfs.AzureBlobFileSystem
  import org.apache.hadoop.fs.azurebfs.constants.FSOperationType
  import org.apache.hadoop.fs.azurebfs.contracts.exceptions.AbfsRestOperationException
  import org.apache.hadoop.fs.azurebfs.services.WholeBlob
  import org.apache.hadoop.fs.azurebfs.utils.{TracingContext, TracingHeaderFormat}
  import org.apache.hadoop.fs.{FileSystem, Path}

  /** Delta's log in Azure: a commit is one Put Blob with `If-None-Match: *`, in accounts with folders and without, as deltalake
    * writes it.
    *
    * Delta's own log store renames a finished file, which is one step only where the account has a hierarchical namespace. And
    * Hadoop's `create(overwrite = false)` makes an empty file, and fills it later: who looks in between takes the commit for
    * an empty one, and what a driver fills in that was stopped there comes twice.
    */
  class AzureLogStore(conf: Configuration) extends DeltasLogStore(conf) with ConditionalLogStore {

    override protected def put(files: FileSystem, path: Path, content: Array[Byte]): Boolean = {
      val store = files.asInstanceOf[AzureBlobFileSystem].getAbfsStore
      val (id, told) = (UUID.randomUUID.toString, TracingHeaderFormat.SINGLE_ID_FORMAT)
      val context = new TracingContext(id, id, FSOperationType.CREATE, told, null)
      try {
        WholeBlob.putIfAbsent(store.getClientHandler.getBlobClient, store.getRelativePath(path), content, context)
        true
      } catch {
        case error: AbfsRestOperationException if AzureLogStore.Refusals(error.getStatusCode) => false
      }
    }
  }

  private object AzureLogStore {
    val Refusals = Set(HTTP_CONFLICT, HTTP_PRECON_FAILED)
  }
}
