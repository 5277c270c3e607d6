package cdc_assets

import java.util.TreeMap

import scala.collection.mutable
import scala.collection.mutable.ArrayBuffer
import scala.util.control.NonFatal

import com.fasterxml.jackson.core.{JsonFactory, JsonParser, JsonToken}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.catalyst.util.{ArrayData, GenericArrayData}
import org.apache.spark.unsafe.types.UTF8String

/** Decides which changes of one key a feed without watermarks applies, in which order, and which changes are duplicates.
  *
  * `release/deduplication.py` states the rule and the columns; its model is `cdc_assets_tests/release/order_model.py`.
  *
  * @param byPlace       whether a duplicate is recognised by its binlog position, else by its content
  * @param trimmed       the highest commit_ts of a change that maintenance has deleted
  * @param pieceFields   the number of fields of a new piece
  * @param appliedFields the number of fields of an applied change
  */
class KeyOrder(byPlace: Boolean, trimmed: Long, pieceFields: Int, appliedFields: Int) extends Serializable {
  import KeyOrder._

  /** Judge the new pieces of a key.
    *
    * @param pieces       the new pieces, in any order
    * @param applied      the changes of earlier releases that new pieces may repeat
    * @param replaying    whether the last release ended within a replay of this key
    * @param tableNewest  the latest time of a change of the table in earlier releases
    * @param rowEnds      the records of statements that ended all rows of the table, or gave it other columns: topic, partition,
    *                     offset, the offset of the last record that repeats it, and whether it ended the rows
    * @return STRUCT<kept ARRAY<STRUCT<at INT, commit_ts BIGINT, repeats INT>>, repeated ARRAY<STRUCT<at INT, repeats INT>>,
    *         lost ARRAY<INT>, unseen INT, in_replay BOOLEAN>
    */
  def judge(pieces: ArrayData, applied: ArrayData, replaying: Boolean, tableNewest: Long, rowEnds: ArrayData): InternalRow = {
    val past = read(applied, appliedFields, PastOffset).sortBy(p => (p.release, p.ordinal))
    val fresh = read(pieces, pieceFields, 0)
    val ends = (0 until rowEnds.numElements).map(rowEnds.getStruct(_, 5)).map { end =>
      RowEnd((end.getUTF8String(0), end.getInt(1)), end.getLong(2), end.getLong(3), end.getBoolean(4))
    }
    val key = new Key(past, replaying, ends)
    if (fresh.nonEmpty && fresh(0).keyless && !byPlace) countCopies(key, fresh, tableNewest) else follow(key, fresh)
    key.result
  }

  private def read(rows: ArrayData, fields: Int, offset: Int): IndexedSeq[Piece] =
    (0 until rows.numElements).map(n => new Piece(n, rows.getStruct(n, fields), offset))

  /** Apply the changes of a row with a key: within a partition by offset, between partitions by row images. */
  private def follow(key: Key, fresh: IndexedSeq[Piece]): Unit = {
    val queues = fresh.groupBy(_.partition).toIndexedSeq.sortBy(_._1).map(q => mutable.Queue.from(q._2.sortBy(_.recordOrder)))
    for (queue <- queues if key.past.nonEmpty) {
      val overtaken = key.overtaken(queue)
      for (_ <- 0 until overtaken) key.dropLate(queue.dequeue())
    }
    var left = queues.filter(_.nonEmpty)
    while (left.nonEmpty) {
      judgeOne(key, (if (left.size == 1) left(0) else key.next(left)).dequeue())
      left = left.filter(_.nonEmpty)
    }
  }

  private def judgeOne(key: Key, piece: Piece): Unit = key.find(piece) match {
    case None =>
      val continues = key.isKnown && piece.continues(key.state)
      val isLate = piece.time <= trimmed || key.isBehind(piece) || key.isOutdatedRead(piece)
      if (!continues && isLate) key.lose(piece) else key.apply(piece)
    case Some(same) =>
      val again = if (byPlace && !key.isOneOfSeveral(piece)) piece.keyless && piece.op == Read
        else same.message == piece.message || (!key.inReplay && piece.time == key.newest && !key.isOutdated(piece) && piece.continues(key.stateBefore(piece)))
      if (again) key.apply(piece) else key.drop(piece, same)
  }

  /** Count the equal rows of a table without a key: within one pass over the stream, each is a separate row. */
  private def countCopies(key: Key, fresh: IndexedSeq[Piece], tableNewest: Long): Unit = {
    val seen = mutable.Map.empty[Any, Int].withDefaultValue(0)
    val times = mutable.Map.empty[Partition, Long].withDefaultValue(Long.MinValue)
    // Order within a partition by offset. Between partitions Kafka has no order, so use the source's time there, made
    // non-decreasing within each partition.
    val ordered = fresh.sortBy(_.recordOrder).map { piece =>
      times(piece.partition) = times(piece.partition) max piece.time
      (times(piece.partition), piece)
    }.sortBy { case (time, piece) => (time, piece.recordOrder) }.map(_._2)
    for (piece <- ordered) {
      val (content, pass) = ((piece.time, piece.op), (piece.partition, piece.pass, piece.time, piece.op))
      seen(pass) += 1
      val copies = key.copies(content)
      if (seen(pass) > copies.size) key.apply(piece)
      else {
        val same = copies(seen(pass) - 1)
        if (same.release >= 0 && piece.time >= tableNewest) key.lose(piece) else key.drop(piece, same)
      }
    }
  }

  /** The state of a key, and the results for its new pieces. */
  private final class Key(val past: IndexedSeq[Piece], replaying: Boolean, rowEnds: Seq[RowEnd]) {
    var inReplay: Boolean = replaying
    var state: Option[Image] = past.lastOption.flatMap(_.after)
    var newest: Long = past.map(_.time).maxOption.getOrElse(Long.MinValue)
    var isKnown: Boolean = past.nonEmpty
    private var position = past.map(_.position).maxOption.getOrElse(Long.MinValue)
    private var last: Option[Piece] = past.lastOption
    private val applied = mutable.HashMap.empty[(Long, UTF8String), ArrayBuffer[Piece]]
    private val byIdentity, byTwin, byPosition = mutable.HashMap.empty[Long, Piece]
    private val atPosition = mutable.HashMap.empty[Long, mutable.HashSet[Long]]
    past.foreach(remember)

    private val kept = ArrayBuffer.empty[(Piece, Long)]
    private val lost = ArrayBuffer.empty[Piece]
    private val repeats = mutable.HashMap.empty[Piece, Int].withDefaultValue(0)
    private val repeated = mutable.LinkedHashSet.empty[Piece]

    def copies(content: (Long, UTF8String)): ArrayBuffer[Piece] = applied.getOrElse(content, ArrayBuffer.empty)

    /** Return the applied change that a piece repeats; of several, the last. */
    def find(piece: Piece): Option[Piece] =
      if (byPlace) byIdentity.get(piece.identity).orElse(piece.twin.flatMap(byTwin.get).filter(_.file != piece.file)).orElse(findInOtherForm(piece))
      else copies((piece.time, piece.op)).reverseIterator.find(_.isSame(piece))

    /** Return the applied change that a piece with other images repeats, as after an upgrade of the connector: the change has
      * the piece's position, and the piece does not go on from it, as it does in a compressed transaction of MySQL.
      */
    private def findInOtherForm(piece: Piece): Option[Piece] = {
      val goesOn = last.exists(_.place == piece.place) && piece.continues(state)
      if (piece.hasOwnPosition && !goesOn && !isOneOfSeveral(piece)) piece.place.flatMap(byPosition.get) else None
    }

    /** Return the row's state before a piece: no row if a statement after the last change ended all rows of the table. */
    def stateBefore(piece: Piece): Option[Image] = if (endsBefore(piece).nonEmpty) None else state

    /** Return whether a statement between the last change and a seen piece gave the table other columns, or comes again. */
    def isOutdated(piece: Piece): Boolean = endsBefore(piece).exists(end => !end.endsRows || end.repeated > piece.message._2)

    private def endsBefore(piece: Piece): Seq[RowEnd] = last.filter(_.partition == piece.partition).toSeq.flatMap { change =>
      rowEnds.filter(end => end.partition == piece.partition && change.message._2 < end.offset && end.offset < piece.message._2)
    }

    /** Return whether the piece's position in the binlog has several changes of this key, so that it identifies none. */
    def isOneOfSeveral(piece: Piece): Boolean = piece.place.flatMap(atPosition.get).exists(_.size > 1)

    private def remember(piece: Piece): Unit = {
      if (byPlace) {
        byIdentity(piece.identity) = piece
        for (place <- piece.place) {
          byPosition(place) = piece
          atPosition.getOrElseUpdate(place, mutable.HashSet.empty) += piece.identity
        }
        piece.twin.foreach(byTwin(_) = piece)
      } else applied.getOrElseUpdate((piece.time, piece.op), ArrayBuffer.empty) += piece
    }

    /** Return whether the last change is later and from another partition: then a piece that does not continue it has no
      * position in the order.
      */
    def isBehind(piece: Piece): Boolean = last.exists(_.partition != piece.partition) && piece.time < newest

    /** Return whether a snapshot read the row before the last change, by clock and binlog: a second connector took it. */
    def isOutdatedRead(piece: Piece): Boolean = {
      val positions = for (change <- last; at <- change.logPosition; read <- piece.logPosition) yield (read, at)
      piece.op == Read && piece.time < newest + Second && positions.exists { case (read, at) => Ordering[(Long, Long)].lt(read, at) }
    }

    def apply(piece: Piece): Unit = {
      position = position max piece.time
      kept += ((piece, position))
      state = piece.after
      newest = newest max piece.time
      isKnown = true
      inReplay = false
      last = Some(piece)
      remember(piece)
    }

    def drop(piece: Piece, same: Piece): Unit = {
      repeats(same) += piece.weight
      if (same.release >= 0) repeated += same
      inReplay = !last.exists(_.eq(same))
    }

    def lose(piece: Piece): Unit = lost += piece

    def dropLate(piece: Piece): Unit = find(piece) match {
      case Some(same) => drop(piece, same)
      case None => lose(piece)
    }

    /** Return how many of a partition's first pieces precede changes that were already applied from another partition.
      *
      * When an update changes a row's key, the old key's delete is sent in another partition than the key's other changes. If
      * an earlier run applied one partition without the other, pieces arrive that do not continue the state. The last of them
      * has the after image with which an applied change began, and which no applied change before that one had left.
      */
    def overtaken(queue: collection.Seq[Piece]): Int = {
      if (queue.find(find(_).isEmpty).forall(_.continues(state))) return 0
      val open = past.indices.filter(n => !past.take(n).exists(p => same(p.after, past(n).before))).map(past)
      def leads(piece: Piece) =
        open.exists(q => q.partition != piece.partition && piece.time <= q.time && same(piece.after, q.before))
      queue.lastIndexWhere(leads) + 1
    }

    /** Return the partition whose first piece is the next in the order. */
    def next(queues: IndexedSeq[mutable.Queue[Piece]]): mutable.Queue[Piece] = {
      def begins(piece: Piece) = if (isKnown) piece.continues(state)
        else !queues.exists(_.exists(other => !other.eq(piece) && same(other.after, piece.before)))
      def leads(piece: Piece) = if (isKnown) queues.exists(_.exists(other => !other.eq(piece) && same(piece.after, other.before)))
        else piece.op == Insert
      queues.minBy { queue =>
        val head = queue.head
        // Repeats come first, because they change nothing.
        (find(head).isEmpty, !begins(head), !leads(head), head.time)
      }
    }

    def result: InternalRow = {
      val rows = kept.map { case (piece, commitTs) => new GenericInternalRow(Array[Any](piece.number, commitTs, repeats(piece))) }
      val earlier = repeated.map(piece => new GenericInternalRow(Array[Any](piece.number, repeats(piece))))
      InternalRow(new GenericArrayData(rows.toArray[Any]), new GenericArrayData(earlier.toArray[Any]),
        new GenericArrayData(lost.map(_.number).toArray[Any]), lost.map(_.weight).sum, inReplay)
    }
  }

  /** A new piece, or a change of an earlier release. */
  private final class Piece(val number: Int, row: InternalRow, offset: Int) {
    private def image(n: Int) = if (row.isNullAt(offset + n)) None else Some(new Image(row.getUTF8String(offset + n)))

    val release: Long = if (offset == 0) -1 else row.getLong(0)
    val ordinal: Int = if (offset == 0) 0 else row.getInt(1)
    val position: Long = if (offset == 0) 0 else row.getLong(2)
    val partition: Partition = (row.getUTF8String(offset), row.getInt(offset + 1))
    val recordOrder: (UTF8String, Int, Long, Int, Int) =
      (partition._1, partition._2, row.getLong(offset + 2), row.getInt(offset + 3), row.getInt(offset + 4))
    val message: (Partition, Long) = (partition, row.getLong(offset + 2))
    val time: Long = row.getLong(offset + 5)
    val op: UTF8String = row.getUTF8String(offset + 6)
    val before: Option[Image] = image(7)
    val after: Option[Image] = image(8)
    val keyless: Boolean = row.getBoolean(offset + 9)
    val weight: Int = row.getInt(offset + 10)
    val pass: Long = row.getLong(offset + 11)
    val identity: Long = row.getLong(offset + 12)
    val twin: Option[Long] = if (row.isNullAt(offset + 13)) None else Some(row.getLong(offset + 13))
    val file: Option[Long] = if (row.isNullAt(offset + 14)) None else Some(row.getLong(offset + 14))
    val place: Option[Long] = if (row.isNullAt(offset + 15)) None else Some(row.getLong(offset + 15))
    val hasOwnPosition: Boolean = row.getBoolean(offset + 16)
    val logPosition: Option[(Long, Long)] = file.filterNot(_ => row.isNullAt(offset + 17)).map((_, row.getLong(offset + 17)))

    /** Return whether both changes have the same images; the caller compares their times and operations. */
    def isSame(other: Piece): Boolean = same(before, other.before) && same(after, other.after)

    /** Return whether the before image equals the row's state. */
    def continues(state: Option[Image]): Boolean = (before, state) match {
      case (None, None) => op == Insert
      case (Some(one), Some(other)) => one.agrees(other)
      case _ => false
    }
  }
}

private object KeyOrder {
  private type Partition = (UTF8String, Int)

  /** The first record of a statement that ended all rows of a table, or gave it other columns, and the offset of its last. */
  private final case class RowEnd(partition: Partition, offset: Long, repeated: Long, endsRows: Boolean)
  private implicit val texts: Ordering[UTF8String] = (a, b) => a.compareTo(b)

  /** The number of fields of an applied change in front of the fields that it shares with a piece. */
  private val PastOffset = 3

  /** The tick of the clock in the binlog, as a commit_ts. */
  private val Second = 1000L << 18

  private val Insert = UTF8String.fromString("insert")
  private val Read = UTF8String.fromString("snapshot")
  private val Json = new JsonFactory

  private def same(a: Option[Image], b: Option[Image]): Boolean = (a, b) match {
    case (Some(one), Some(other)) => one.equals(other)
    case _ => a.isEmpty && b.isEmpty
  }

  /** A row image, a JSON object; images are equal if their columns are, whatever the order, blanks and escapes. */
  private final class Image(private val text: UTF8String) {
    private lazy val columns: TreeMap[String, String] = {
      val texts = new TreeMap[String, String]
      try {
        val parser = Json.createParser(text.getBytes)
        if (parser.nextToken() == JsonToken.START_OBJECT)
          while (parser.nextToken() == JsonToken.FIELD_NAME) {
            val name = parser.currentName
            texts.put(name, valueAt(parser))
          }
      } catch { case NonFatal(_) => texts.put("", text.toString) }
      texts
    }

    /** Return the text of a value, NULL for null; for an object or an array, the sequence of its tokens. */
    private def valueAt(parser: JsonParser): String = parser.nextToken() match {
      case JsonToken.VALUE_NULL => null
      case JsonToken.START_OBJECT | JsonToken.START_ARRAY =>
        val (tokens, depth) = (new StringBuilder(parser.getText), parser.getParsingContext.getNestingDepth)
        while (parser.nextToken() != null && parser.getParsingContext.getNestingDepth >= depth)
          tokens.append(parser.currentToken.id).append(parser.getText).append('\u0000')
        tokens.toString
      case _ => parser.getText
    }

    override def equals(other: Any): Boolean = other match {
      case image: Image => text == image.text || columns == image.columns
      case _ => false
    }

    override def hashCode: Int = columns.hashCode

    /** Return whether the columns that both images have are equal. */
    def agrees(other: Image): Boolean = equals(other) || {
      val shared = columns.keySet.stream.filter(other.columns.containsKey(_))
      shared.allMatch(name => java.util.Objects.equals(columns.get(name), other.columns.get(name)))
    }
  }
}
