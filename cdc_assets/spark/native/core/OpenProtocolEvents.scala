package cdc_assets

import scala.collection.mutable.ArrayBuffer

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.catalyst.util.GenericArrayData
import org.apache.spark.unsafe.types.UTF8String

/** Splits an Open Protocol record into its events: `protocols/open_protocol.py` describes the format.
  *
  * A native function, because Spark interprets lambdas, with which its own expressions would have to do this.
  *
  * @param version   the protocol version that the key must state
  * @param maxEvents the highest number of events of a record
  */
class OpenProtocolEvents(version: Int, maxEvents: Int) extends Serializable {
  import OpenProtocolEvents._

  /** Return STRUCT of events ARRAY<STRUCT<key BINARY, value BINARY>>, and error STRING: the byte that does not fit, and why.
    * With an error, events is null.
    */
  def split(key: Array[Byte], value: Array[Byte]): InternalRow = {
    val events = ArrayBuffer.empty[Any]
    var error = versionError(key)
    var (keyAt, valueAt) = (LengthBytes, 0)
    while (error == null && keyAt < key.length && events.length < maxEvents) {
      val keySize = readLength(key, keyAt)
      val valueSize = if (value == null) 0 else readLength(value, valueAt)
      if (keySize < 0 || keySize > key.length - keyAt - LengthBytes) error = lengthError("key", keyAt)
      else if (value != null && (valueSize < 0 || valueSize > value.length - valueAt - LengthBytes)) error = lengthError("value", valueAt)
      else {
        val eventValue = if (value == null) null else content(value, valueAt, valueSize)
        events += new GenericInternalRow(Array[Any](content(key, keyAt, keySize), eventValue))
        keyAt += LengthBytes + keySize
        valueAt += LengthBytes + valueSize
      }
    }
    if (error == null && keyAt < key.length) error = errorAt("the key", keyAt, s"more than $maxEvents events")
    if (error == null && events.isEmpty) error = "no event in the key"
    if (error == null && value != null && valueAt < value.length) error = errorAt("the value", valueAt, "data after the last event")
    InternalRow(if (error == null) new GenericArrayData(events.toArray) else null, UTF8String.fromString(error))
  }

  private def versionError(key: Array[Byte]): String =
    if (key == null) "the record has no key"
    else {
      val stated = readLength(key, 0)
      if (stated == version) null else s"byte 0 of the key: version ${if (stated < 0) "none" else stated.toString}, expected $version"
    }
}

private object OpenProtocolEvents {
  /** The size of a length, and of the version. */
  val LengthBytes = 8

  /** Return the big-endian length at a position; -1 if there are too few bytes, or the length is out of INT's range. */
  def readLength(data: Array[Byte], at: Int): Int = {
    if (data.length - at < LengthBytes) return -1
    var (length, n) = (0L, 0)
    while (n < LengthBytes) { length = length << 8 | data(at + n) & 0xff; n += 1 }
    if (length < 0 || length > Int.MaxValue) -1 else length.toInt
  }

  /** Return the bytes after the length at a position. */
  def content(data: Array[Byte], at: Int, size: Int): Array[Byte] =
    java.util.Arrays.copyOfRange(data, at + LengthBytes, at + LengthBytes + size)

  def errorAt(part: String, at: Int, problem: String): String = s"byte $at of $part: $problem"

  def lengthError(part: String, at: Int): String = errorAt(s"the $part", at, s"a length that reaches past the $part's end")
}
