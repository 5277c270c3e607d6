package org.apache.hadoop.fs.azurebfs.services {

  import org.apache.hadoop.fs.azurebfs.constants.{AbfsHttpConstants, HttpHeaderConfigurations}
  import org.apache.hadoop.fs.azurebfs.extensions.SASTokenProvider.CREATE_FILE_OPERATION
  import org.apache.hadoop.fs.azurebfs.utils.TracingContext

  /** Access to a call that Hadoop's client (3.4.2) has for its own package only: Azure's Put Blob with the complete content. */
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

  import io.delta.storage.{AzureLogStore => DeltaAzureLogStore}
  import org.apache.hadoop.conf.Configuration
  import org.apache.hadoop.fs.azurebfs.AzureBlobFileSystem
  import org.apache.hadoop.fs.azurebfs.constants.FSOperationType
  import org.apache.hadoop.fs.azurebfs.contracts.exceptions.AbfsRestOperationException
  import org.apache.hadoop.fs.azurebfs.services.WholeBlob
  import org.apache.hadoop.fs.azurebfs.utils.{TracingContext, TracingHeaderFormat}
  import org.apache.hadoop.fs.{FileSystem, Path}

  /** The log store of Azure: a commit is one Put Blob with `If-None-Match: *`, as in deltalake, in all kinds of accounts.
    *
    * Delta's own log store renames a complete file, which is atomic only in accounts with a hierarchical namespace. Hadoop's
    * `create(overwrite = false)` creates an empty file and fills it later: a reader could see an empty commit meanwhile.
    */
  class AzureLogStore(conf: Configuration) extends DeltaAzureLogStore(conf) with ConditionalLogStore {

    override protected def put(files: FileSystem, path: Path, content: Array[Byte]): Boolean = {
      val store = files.asInstanceOf[AzureBlobFileSystem].getAbfsStore
      val (id, header) = (UUID.randomUUID.toString, TracingHeaderFormat.SINGLE_ID_FORMAT)
      val context = new TracingContext(id, id, FSOperationType.CREATE, header, null)
      try {
        WholeBlob.putIfAbsent(store.getClientHandler.getBlobClient, store.getRelativePath(path), content, context)
        true
      } catch {
        case error: AbfsRestOperationException if AzureLogStore.RefusedStatus(error.getStatusCode) => false
      }
    }
  }

  private object AzureLogStore {
    val RefusedStatus = Set(HTTP_CONFLICT, HTTP_PRECON_FAILED)
  }
}
