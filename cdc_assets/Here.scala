package org.apache.spark.sql.cdc_assets // what runs a part of a plan is open to Spark's own packages alone

import java.io.{BufferedOutputStream, FileOutputStream}

import org.apache.spark.{JobArtifactSet, SparkContext, SparkEnv, TaskContext}
import org.apache.spark.executor.TaskMetrics
import org.apache.spark.memory.TaskMemoryManager
import org.apache.spark.rdd.RDD
import org.apache.spark.scheduler.{Task, TaskSchedulerImpl}
import org.apache.spark.sql.Row
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.classic.Dataset
import org.apache.spark.sql.execution.SQLExecution
import org.apache.spark.sql.execution.arrow.{ArrowBatchStreamWriter, ArrowConverters}
import org.apache.spark.sql.types.StructType
import org.apache.spark.util.Utils

/** Plans of one part, computed in the thread that asks for them; where there are executors, by these.
  *
  * To submit a job, to send its one task to another thread, and to hear from it, takes Spark longer than a task over few rows:
  * of each function in it the class is read anew and looked through, and task, function and result are serialized.
  */
object Here {

  /** Write the rows into a file, as an Arrow stream. (As the answer to a call they would be text; and one of more than 8 kB
    * comes in several packets, of which the last waits 40 ms for the others to be acknowledged.)
    */
  def rows(frame: Dataset[Row], file: String): Unit = {
    // Computed here, a plan keeps what it needed, and could not be sent to executors: the frame's own stays as it is.
    val query = frame.sparkSession.sessionState.executePlan(frame.queryExecution.analyzed)
    val conf = frame.sparkSession.sessionState.conf
    val zone = conf.sessionLocalTimeZone
    val written = new BufferedOutputStream(new FileOutputStream(file))
    try SQLExecution.withNewExecutionId(query, Some("rows")) {
      val writer = new ArrowBatchStreamWriter(frame.schema, written, zone, true, false)
      val rows = query.executedPlan.execute()
      val batches = inBatches(frame.schema, conf.arrowMaxRecordsPerBatch, zone)
      if (rows.partitions.length == 1 && rows.sparkContext.isLocal)
        compute(new OnePart(rows, some => writer.writeBatches(batches(some))))
      else byJob(rows, batches).foreach(part => writer.writeBatches(part.iterator))
      writer.end()
      rows.doCheckpoint() // what was to be kept is from now on read from where it is kept, as after a job
    } finally written.close()
  }

  private type Batches = Iterator[InternalRow] => Iterator[Array[Byte]]

  private def inBatches(schema: StructType, most: Int, zone: String): Batches =
    ArrowConverters.toBatchIterator(_, schema, most, zone, true, false, TaskContext.get())

  private def byJob(rows: RDD[InternalRow], batches: Batches): Array[Array[Array[Byte]]] =
    rows.sparkContext.runJob(rows, (some: Iterator[InternalRow]) => batches(some).toArray)

  /** The only part of rows, as Spark's executors take it: with memory of its own, which `run` and `compute` give back; and by
    * the thread's local properties, by which an expression knows what is set in its session.
    */
  private class OnePart(rows: RDD[InternalRow], use: Iterator[InternalRow] => Unit)
      extends Task[Unit](
        0, 0, 0, 1, JobArtifactSet.emptyJobArtifactSet, Utils.cloneProperties(rows.sparkContext.getLocalProperties), metrics) {
    override def runTask(context: TaskContext): Unit = use(rows.iterator(rows.partitions.head, context))
  }

  /** What is counted of a part, and told nobody: made once, as Spark forgets none that it makes for a task by default. */
  private lazy val metrics = SparkEnv.get.closureSerializer.newInstance().serialize(TaskMetrics.registered).array()

  private def compute(part: OnePart): Unit = {
    val env = SparkEnv.get
    val id = SparkContext.getActive.get.taskScheduler.asInstanceOf[TaskSchedulerImpl].newTaskId()
    val memory = new TaskMemoryManager(env.memoryManager, id)
    part.setTaskMemoryManager(memory)
    try part.run(id, 0, env.metricsSystem, 1, Map.empty, None)
    finally {
      env.blockManager.releaseAllLocksForTask(id)
      memory.cleanUpAllAllocatedMemory()
    }
  }
}
