package cdc_assets

import java.nio.charset.StandardCharsets.{US_ASCII, UTF_8}
import java.util.Base64

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.util.MapData
import org.apache.spark.unsafe.types.UTF8String

/** Row images of Simple Protocol in Avro as JSON texts: `protocols/simple_avro.py` has the union of which a value is.
  *
  * A function of this package's own, as Spark's lambdas are interpreted, which took a fifth of decoding such an event.
  */
final class AvroImages

object AvroImages {
  import Json.{Bytes, Quoting}

  // The members of the union, in its order; a null is none of them.
  private val (long, float, double, text, bytes, timestamp, unsigned, members) = (0, 1, 2, 3, 4, 5, 6, 7)

  /** A JSON object: column -> the text that JSON has for its value: bytes in base64, a TIMESTAMP as the text of its object, a big
    * number without its sign; or null.
    */
  def image(columns: MapData): UTF8String = written(columns, (value, member) => member match {
    case `long` => value.getLong(long).toString.getBytes(US_ASCII)
    case `float` => value.getFloat(float).toString.getBytes(US_ASCII)
    case `double` => value.getDouble(double).toString.getBytes(US_ASCII)
    case `text` => value.getUTF8String(text).getBytes
    case `bytes` => Base64.getEncoder.encode(value.getBinary(bytes))
    case `timestamp` =>
      val (out, at) = (new Bytes(64), value.getStruct(timestamp, 2))
      for ((field, n) <- Seq("{\"location\":", ",\"value\":").zipWithIndex) {
        add(field, out)
        quoted(at.getUTF8String(n).getBytes, out)
      }
      out.add('}'.toByte)
      out.result
    case `unsigned` => java.lang.Long.toUnsignedString(value.getStruct(unsigned, 1).getLong(0)).getBytes(US_ASCII)
  })

  /** A JSON object: column -> the name of its value's member of the union; or null.
    *
    * @param names of the members, in order, with commas between
    */
  def branches(columns: MapData, names: UTF8String): UTF8String = {
    val of = names.toString.split(',').map(_.getBytes(US_ASCII))
    written(columns, (_, member) => of(member))
  }

  private def written(columns: MapData, text: (InternalRow, Int) => Array[Byte]): UTF8String = {
    val (names, values, out) = (columns.keyArray, columns.valueArray, new Bytes(512))
    out.add('{'.toByte)
    var n = 0
    while (n < columns.numElements) {
      if (n > 0) out.add(','.toByte)
      quoted(names.getUTF8String(n).getBytes, out)
      out.add(':'.toByte)
      val value = if (values.isNullAt(n)) null else values.getStruct(n, members)
      var member = 0
      while (value != null && member < members && value.isNullAt(member)) member += 1
      if (value == null || member == members) add("null", out) else quoted(text(value, member), out)
      n += 1
    }
    out.add('}'.toByte)
    UTF8String.fromBytes(out.result)
  }

  private def add(text: String, out: Bytes): Unit = {
    val all = text.getBytes(US_ASCII)
    out.add(all, 0, all.length)
  }

  /** A text of JSON; what is no UTF-8 in it becomes U+FFFD. */
  private def quoted(text: Array[Byte], out: Bytes): Unit = {
    // Most texts stand in JSON as they are.
    var at = 0
    while (at < text.length && text(at) >= ' ' && text(at) != '"' && text(at) != '\\') at += 1
    val all = if (at == text.length) text else new String(Quoting.quoteAsString(new String(text, UTF_8))).getBytes(UTF_8)
    out.add('"'.toByte)
    out.add(all, 0, all.length)
    out.add('"'.toByte)
  }
}
