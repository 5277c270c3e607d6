package cdc_assets

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.catalyst.util.GenericArrayData
import org.apache.spark.unsafe.types.UTF8String

/** The events of a record of Open Protocol: `protocols/open_protocol.py` has the form.
  *
  * A function of this package's own, as lambdas, by which Spark's own expressions would do it, are interpreted.
  *
  * @param version the protocol's
  * @param most how many events a record may have
  */
class Frames(version: Int, most: Int) extends Serializable {
  import Frames._

  /** STRUCT of events ARRAY<STRUCT<key BINARY, value BINARY>>, and error STRING: which byte does not fit; no event counts then. */
  def cut(key: Array[Byte], value: Array[Byte]): InternalRow = {
    val events = ArrayBuffer.empty[Any]
    var error = wrongVersion(key)
    var (at, valueAt) = (Length, 0)
    while (error == null && at < key.length && events.length < most) {
      val size = length(key, at)
      val valueSize = if (value == null) 0 else length(value, valueAt)
      if (size < 0 || size > key.length - at - Length) error = pastEnd("key", at)
      else if (value != null && (valueSize < 0 || valueSize > value.length - valueAt - Length)) error = pastEnd("value", valueAt)
      else {
        events += new GenericInternalRow(Array[Any](part(key, at, size), if (value == null) null else part(value, valueAt, valueSize)))
        at += Length + size
        valueAt += Length + valueSize
      }
    }
    if (error == null && at < key.length) error = place("the key", at, s"more than $most events")
    if (error == null && events.isEmpty) error = "no event in the key"
    if (error == null && value != null && valueAt < value.length) error = place("the value", valueAt, "more than the key's events")
    InternalRow(if (error == null) new GenericArrayData(events.toArray) else null, UTF8String.fromString(error))
  }

  private def wrongVersion(key: Array[Byte]): String =
    if (key == null) "the record has no key"
    else {
      val told = length(key, 0)
      if (told == version) null else s"byte 0 of the key: version ${if (told < 0) "none" else told.toString}, expected $version"
    }
}

private object Frames {
  /** The bytes of a length, and of the version. */
  val Length = 8

  /** The length that stands there; -1: there are too few bytes, or it is out of INT's range. */
  def length(data: Array[Byte], at: Int): Int = {
    if (data.length - at < Length) return -1
    var (told, n) = (0L, 0)
    while (n < Length) { told = told << 8 | data(at + n) & 0xff; n += 1 }
    if (told < 0 || told > Int.MaxValue) -1 else told.toInt
  }

  def part(data: Array[Byte], at: Int, size: Int): Array[Byte] = java.util.Arrays.copyOfRange(data, at + Length, at + Length + size)

  def place(what: String, at: Int, problem: String): String = s"byte $at of $what: $problem"

  def pastEnd(what: String, at: Int): String = place(s"the $what", at, s"a length that reaches past the $what's end")
}
