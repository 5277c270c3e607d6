package cdc_assets

import org.apache.spark.sql.Row
import org.apache.spark.sql.classic.{Dataset, SparkSession}
import org.apache.spark.sql.delta.DeltaOperations.ManualUpdate
import org.apache.spark.sql.delta.actions.{AddFile, FileAction, SetTransaction}
import org.apache.spark.sql.delta.commands.{DeletionVectorData, DeletionVectorWriter}
import org.apache.spark.sql.delta.deletionvectors.{RoaringBitmapArray, RoaringBitmapArrayFormat}
import org.apache.spark.sql.delta.util.DeltaFileOperations.absolutePath
import org.apache.spark.sql.delta.util.{Utils => DeltaUtils}
import org.apache.spark.sql.delta.{DeltaLog, OptimisticTransaction}
import org.apache.spark.sql.functions.{col, collect_list}

/** Rows that go from a Delta table and rows that come into it, in one commit, where it is known already where those stand that
  * go.
  *
  * Delta's MERGE looks for them three times, in all files that may have them: for the files, for the rows that it is to
  * insert, and for the rows that it is to mark as deleted. They are marked here by what marks them there.
  */
object Closing {

  /** Make the commit, unless there is one of its number, or a later one.
    *
    * @param gone   where the rows stand that go: `file` STRING and `row` BIGINT, as Delta's reader tells them in `_metadata`
    * @param come   the rows that come, in the table's columns
    * @param within in SQL, what the partitions of those that go have in common
    * @param app    the name under which the table's commits are numbered
    * @param number the commit's
    * @throws IllegalStateException a file has been replaced since the rows were looked for
    */
  def commit(
      session: SparkSession, table: String, gone: Dataset[Row], come: Dataset[Row], within: String, app: String, number: Long
  ): Unit = {
    val before = SparkSession.getActiveSession
    SparkSession.setActiveSession(session) // Delta takes what is noted in the commit from it
    try DeltaLog.forTable(session, table).withNewTransaction(None, None) { transaction =>
      if (transaction.txnVersion(app) < number) {
        val places = gone.groupBy("file").agg(collect_list(col("row"))).collect().map(r => r.getString(0) -> r.getSeq[Long](1))
        val files = touched(session, transaction, within, places.map(_._1).toSet)
        val changed = marked(session, transaction, places.toSeq.map { case (file, rows) => (files(file), rows) })
        val numbered = SetTransaction(app, number, Some(System.currentTimeMillis))
        val _ = transaction.commit(changed ++ transaction.writeFiles(come) :+ numbered, ManualUpdate)
      }
    } finally before.fold(SparkSession.clearActiveSession())(SparkSession.setActiveSession)
  }

  /** The files at these places, as the log has them. */
  private def touched(
      session: SparkSession, transaction: OptimisticTransaction, within: String, places: Set[String]
  ): Map[String, AddFile] = {
    val root = transaction.deltaLog.dataPath.toString
    val candidates = transaction.filterFiles(Seq(session.sessionState.sqlParser.parseExpression(within)))
    val names = candidates.map(f => absolutePath(root, f.path).toUri.toString -> f.path).filter(f => places(f._1)).toMap
    for (lost <- places.find(!names.contains(_)))
      throw new IllegalStateException(s"DELTA_CONCURRENT_DELETE_READ: $lost has been replaced since it was read")
    val whole = transaction.snapshot.getSpecificFilesWithStats(names.values.toSeq).map(f => f.path -> f).toMap
    names.map { case (place, path) => place -> whole(path) }
  }

  /** What a commit says of these files when these rows of them are marked as deleted, beside those that are already. */
  private def marked(
      session: SparkSession, transaction: OptimisticTransaction, rows: Seq[(AddFile, Seq[Long])]
  ): Seq[FileAction] = {
    val log = transaction.deltaLog
    val write = DeletionVectorWriter.createMapperToStoreDeletionVectors(
      session, log.newDeltaHadoopConf(), log.dataPath, DeltaUtils.getRandomPrefixLength(transaction.metadata))
    val data = rows.map { case (file, rows) =>
      val bytes = RoaringBitmapArray(rows: _*).serializeAsByteArray(RoaringBitmapArrayFormat.Portable)
      DeletionVectorData(file.path, Option(file.deletionVector).map(_.serializeToBase64()), bytes, rows.size.toLong)
    }
    val files = rows.map { case (file, _) => file.path -> file }.toMap
    write(data.iterator).toSeq.flatMap { result =>
      val file = files(result.filePath)
      if (file.numPhysicalRecords.contains(result.deletionVector.cardinality)) Seq(file.remove)
      else {
        val (added, removed) = file.removeRows(result.deletionVector, updateStats = true)
        Seq(added, removed)
      }
    }
  }
}
