package cdc_assets

import java.math.BigInteger
import java.util.regex.Pattern

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import com.fasterxml.jackson.core.{JsonFactory, JsonFactoryBuilder, JsonParser, JsonToken}
import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnBase64
import org.apache.spark.sql.catalyst.util.{ArrayData, GenericArrayData}
import org.apache.spark.unsafe.types.UTF8String

/** What is not as usual among the values of a row, held against the limits of its layout: `type_checks/values.py` says what these
  * are, and what comes back; classes come back by their names there. NULL where all is as usual.
  *
  * A function of this package's own, as an expression of Spark's for it is a tree of lambdas, which Spark interprets: with it
  * the whole stage took 2.7 times the processor's time.
  *
  * @param layouts a JSON object: layout -> {"columns": [limits], "required": [names]}
  * @param wired   whether the type that a value has on the wire tells anything
  */
class Remarks(layouts: String, wired: Boolean) extends Serializable {
  import Remarks._

  @transient private lazy val byShape: Map[Long, Layout] =
    Mapper.readTree(layouts).properties.asScala.map(e => e.getKey.toLong -> new Layout(e.getValue)).toMap

  /** `shape`: the layout. `image`: the row, a JSON object. `branches`: column -> what its value came in; empty: its JSON type. */
  def of(shape: Long, image: UTF8String, branches: UTF8String): ArrayData =
    byShape.get(shape).flatMap(layout => valuesOf(image.toString, branches.toString).map(remarks(layout, _))) match {
      case Some(found) if found.nonEmpty => new GenericArrayData(found.toArray[Any])
      case _ => null
    }

  private def remarks(layout: Layout, values: Values): mutable.ArrayBuffer[InternalRow] = {
    val found = mutable.ArrayBuffer.empty[InternalRow]
    for ((name, value) <- values) {
      val limits = layout.columns.getOrElse(name, null)
      val wire = if (wired) value.wire else null
      val usual = limits != null && (limits.wires == null || wire == null || wire == limits.wires(0))
      val told = if (usual) null else wire
      var what = if (limits == null) "UNTYPED" else limits.wrong(value.text, value.wire)
      // Where the way in which a large number comes goes by its size.
      if (what == null && told != null && limits.halved) what = if (isLong(value.text)) "LOWER" else "UPPER"
      if (what != null || told != null) found += remark(name, told, what, value.text)
    }
    for (name <- layout.columns.keysIterator if !values.contains(name))
      found += remark(name, null, if (layout.required(name)) "MISSING" else "ABSENT", null)
    found
  }
}

private object Remarks {
  private val Mapper = new ObjectMapper
  private val Json = new JsonFactoryBuilder().disable(JsonFactory.Feature.INTERN_FIELD_NAMES).build
  private val Shown = 200

  final class Value(val text: String, val wire: String)
  type Values = mutable.LinkedHashMap[String, Value]

  private final class Layout(told: JsonNode) {
    // Some thousand columns are met once a row: found by name, in no order.
    val columns: mutable.HashMap[String, Limits] =
      mutable.HashMap.from(told.get("columns").elements.asScala.map(c => c.get("name").asText -> new Limits(c)))
    val required: Set[String] = told.get("required").elements.asScala.map(_.asText).toSet
  }

  private def remark(name: String, wire: String, what: String, text: String): InternalRow = {
    val shown = if (text == null) null else text.substring(0, text.offsetByCodePoints(0, text.codePointCount(0, text.length) min Shown))
    InternalRow.fromSeq(Seq(name, wire, what, shown).map(UTF8String.fromString))
  }

  /** The values of a row by column, the last of several of one name; none where the text is no object. */
  private def valuesOf(image: String, branches: String): Option[Values] =
    try {
      val (found, own) = (new Values, if (branches.isEmpty) null else textsOf(branches))
      val parser = Json.createParser(image)
      if (parser.nextToken() != JsonToken.START_OBJECT) return None
      while (parser.nextToken() == JsonToken.FIELD_NAME) {
        val name = parser.currentName
        parser.nextToken()
        val value = valueAt(parser, image)
        found(name) = if (own == null) value else new Value(value.text, own.getOrElse(name, null))
      }
      if (own != null) for ((name, branch) <- own if !found.contains(name)) found(name) = new Value(null, branch)
      Some(found)
    } catch { case NonFatal(_) => None }

  private def textsOf(text: String): Map[String, String] =
    Mapper.readTree(text).properties.asScala.map(e => e.getKey -> (if (e.getValue.isNull) null else e.getValue.asText)).toMap

  private def valueAt(parser: JsonParser, image: String): Value = parser.currentToken match {
    case JsonToken.VALUE_NULL => new Value(null, null)
    case JsonToken.VALUE_STRING => new Value(parser.getText, "string")
    case JsonToken.VALUE_TRUE | JsonToken.VALUE_FALSE => new Value(parser.getText, "boolean")
    case JsonToken.START_OBJECT => new Value(whole(parser, image), "object")
    case JsonToken.START_ARRAY => new Value(whole(parser, image), "array")
    case _ => new Value(parser.getText, "number")
  }

  /** The text of an object or an array, as it stands there. */
  private def whole(parser: JsonParser, image: String): String = {
    val begin = parser.currentTokenLocation.getCharOffset.toInt
    parser.skipChildren()
    image.substring(begin, parser.currentLocation.getCharOffset.toInt)
  }

  private def isLong(text: String): Boolean = try { text.toLong; true } catch { case _: NumberFormatException => false }

  /** The limits of a column, `Limits` of `type_checks/values.py`. */
  private final class Limits(told: JsonNode) {
    private def text(name: String): String = Option(told.get(name)).filterNot(_.isNull).map(_.asText).orNull
    private def texts(name: String): Array[String] =
      Option(told.get(name)).filterNot(_.isNull).map(_.elements.asScala.map(_.asText).toArray).orNull
    private def number(name: String): Long = Option(told.get(name)).filterNot(_.isNull).map(_.asLong).getOrElse(-1L)

    private val ofNull = text("null")
    val wires: Array[String] = texts("wires")
    private val length = number("length")
    private val scale = number("scale")
    private val signed = told.get("signed").asBoolean
    private val labels = Option(texts("labels")).map(_.toSet).orNull
    private val bounds = Option(texts("ranges")).map(_.map(new BigInteger(_))).orNull
    // What a Long holds of the range that is looked at first; of none, and of one above it, nothing.
    private val (low, high) =
      if (bounds == null || bounds(0).compareTo(Most) > 0) (1L, 0L)
      else (bounds(0).max(Least).longValue, bounds(1).min(Most).longValue)
    private val form = text("form")
    val halved: Boolean = form == "WHOLE" && bounds != null && bounds(1).compareTo(Most) > 0

    /** What is wrong with a value: the name of a `Class`, or null. */
    def wrong(value: String, wire: String): String = if (value == null) ofNull else form match {
      case "ANY" => null
      case "WHOLE" => wrongWhole(value)
      case "DECIMAL" => wrongDecimal(value)
      case "FLOAT" => wrongFloat(value, LargestFloat)
      case "DOUBLE" => wrongFloat(value, Double.PositiveInfinity)
      // U+FFFD stands for what the encoder could not read.
      case "TEXT" => if (tooLong(value) && !value.contains("\ufffd")) "TOO_LONG" else null
      case "LATIN1" => if (value.exists(_ > 0xff)) "UNREADABLE" else if (tooLong(value)) "TOO_LONG" else null
      case "BASE64" => wrongBase64(value)
      // In base64 there is no point.
      case "UNSCALED" => if (value.contains('.') || wire == "number") unless(Float, value) else wrongBase64(value)
      case "DATE" => unless(Date, value)
      case "DATETIME" => unless(DateTime, value)
      case "TIMESTAMP" => wrongTimestamp(value)
      case "ZONED" => unless(Zoned, value)
      case "TIME" => unless(Time, value)
      case "YEAR" => wrongYear(value)
      case "LABEL" => if (labels != null && labels(value)) null else wrongWhole(value)
      // Canal prints MySQL's empty bytes, which a server shows as null, as an empty text.
      case "JSON" => if (value.isEmpty || JsonTexts.isDocument(UTF8String.fromString(value))) null else "UNREADABLE"
      case "LABELS" => if (value.isEmpty || value.split(",", -1).forall(labels)) null else "UNREADABLE"
    }

    private def tooLong(value: String) = length >= 0 && value.codePointCount(0, value.length) > length

    private def wrongWhole(value: String): String = {
      if (plain(value)) return null
      if (bounds == null || !Whole.matcher(value).matches) return "OUTSIDE"
      val exact = new BigInteger(value)
      def between(n: Int) = exact.compareTo(bounds(n)) >= 0 && exact.compareTo(bounds(n + 1)) <= 0
      if (between(0)) null else if (between(2)) "ELSEWHERE" else "OUTSIDE"
    }

    /** Whether it is a number of few digits within the first range; all else is looked at closely. */
    private def plain(value: String): Boolean = {
      val from = if (value.startsWith("-")) 1 else 0
      val digits = value.length - from
      if (digits < 1 || digits > 18) return false
      var (number, at) = (0L, from)
      while (at < value.length) {
        val digit = value.charAt(at) - '0'
        if (digit < 0 || digit > 9) return false
        number = number * 10 + digit
        at += 1
      }
      val signed = if (from == 1) -number else number
      low <= signed && signed <= high
    }

    private def wrongDecimal(value: String): String = {
      if (!Decimal.matcher(value).matches) return "UNREADABLE"
      val point = value.indexOf('.')
      val before = value.take(if (point < 0) value.length else point).dropWhile(c => c == '-' || c == '0').length
      val after = if (point < 0) 0 else value.drop(point + 1).reverse.dropWhile(_ == '0').length
      val many = if (length < 0) before + after > MostDigits else before > length || after > scale
      val negative = !signed && value.startsWith("-") && value.exists(c => c >= '1' && c <= '9')
      if (many || negative) "OUTSIDE" else null
    }

    private def wrongFloat(value: String, most: Double): String = {
      if (!Float.matcher(value).matches) return "UNREADABLE"
      val number = value.toDouble
      if (number.abs >= most || (!signed && number < 0)) "OUTSIDE" else null
    }

    private def wrongBase64(value: String): String =
      if (!UnBase64.isValidBase64(UTF8String.fromString(value))) "UNREADABLE"
      else if (length >= 0 && java.util.Base64.getMimeDecoder.decode(value).length > length) "TOO_LONG"
      else null

    /** A text, or the object of Simple's JSON. */
    private def wrongTimestamp(value: String): String = {
      val clock = if (value.startsWith("{")) Option(Mapper.readTree(value).get("value")).map(_.asText).getOrElse("") else value
      if (!DateTime.matcher(clock).matches) return "UNREADABLE"
      val day = clock.take(FirstDay.length)
      if ((day < FirstDay || day > LastDay) && day != "0000-00-00") "OUTSIDE" else null
    }

    private def wrongYear(value: String): String = {
      if (!Year.matcher(value).matches) return "UNREADABLE"
      val year = value.toInt
      if ((year < FirstYear || year > LastYear) && year != 0) "OUTSIDE" else null
    }
  }

  private def unless(pattern: Pattern, value: String) = if (pattern.matcher(value).matches) null else "UNREADABLE"

  private val Least = BigInteger.valueOf(Long.MinValue)
  private val Most = BigInteger.valueOf(Long.MaxValue)
  // A DECIMAL of unknown precision becomes Spark's largest.
  private val MostDigits = 38
  // From here on it is rounded to infinity.
  private val LargestFloat = 3.4028235677973366e38
  private val FirstYear = 1901 // and 0
  private val LastYear = 2155
  // The days on which a TIMESTAMP may lie in some time zone.
  private val FirstDay = "1969-12-31"
  private val LastDay = "2038-01-20"

  private val Whole = Pattern.compile("-?[0-9]+")
  private val Decimal = Pattern.compile("-?[0-9]+([.][0-9]*)?")
  private val Float = Pattern.compile("-?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?")
  // Zero dates, and days that a month does not have, are permitted here: history tells them apart.
  private val Day = "[0-9]{4}-(?:0[0-9]|1[0-2])-(?:[0-2][0-9]|3[01])"
  private val Clock = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:[.][0-9]{1,6})?"
  private val Date = Pattern.compile(Day)
  private val DateTime = Pattern.compile(s"$Day $Clock")
  private val Zoned = Pattern.compile(s"${Day}T${Clock}Z")
  private val Time = Pattern.compile(
    "(?!-?838:59:59[.]0*[1-9])-?(?:0?[0-9]{2}|[1-7][0-9]{2}|8[0-2][0-9]|83[0-8]):[0-5][0-9]:[0-5][0-9](?:[.][0-9]{1,6})?")
  private val Year = Pattern.compile("[0-9]{1,4}")
}
