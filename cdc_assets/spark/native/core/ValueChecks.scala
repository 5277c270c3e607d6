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

/** Compares the values of a row with the limits of its column layout, and returns the deviations: `type_checks/values.py`
  * describes the limits and the result. Deviations have the names of the classes there.
  *
  * A native function, because Spark's own expressions for it would be a tree of lambdas, which Spark interprets.
  *
  * @param layouts a JSON object: layout -> {"columns": [limits], "required": [names]}
  * @param wired   whether the type that a value has on the wire is part of the mapping and is checked
  */
class ValueChecks(layouts: String, wired: Boolean) extends Serializable {
  import ValueChecks._

  @transient private lazy val byLayout: Map[Long, Layout] =
    Mapper.readTree(layouts).properties.asScala.map(e => e.getKey.toLong -> new Layout(e.getValue)).toMap

  /** Return the deviations of a row as ARRAY<STRUCT<name, wire, class, text>>, or null if there are none.
    *
    * @param layout   the column layout
    * @param image    the row, a JSON object
    * @param branches column -> the wire type of its value, a JSON object; empty: the wire type is the JSON type
    */
  def check(layout: Long, image: UTF8String, branches: UTF8String): ArrayData =
    byLayout.get(layout).flatMap(limits => valuesOf(image.toString, branches.toString).map(deviations(limits, _))) match {
      case Some(rows) if rows.nonEmpty => new GenericArrayData(rows.toArray[Any])
      case _ => null
    }

  private def deviations(layout: Layout, values: Values): mutable.ArrayBuffer[InternalRow] = {
    val rows = mutable.ArrayBuffer.empty[InternalRow]
    for ((name, value) <- values) {
      val limits = layout.columns.getOrElse(name, null)
      val wire = if (wired) value.wire else null
      val isUsualWire = limits != null && (limits.wires == null || wire == null || wire == limits.wires(0))
      val otherWire = if (isUsualWire) null else wire
      var problem = if (limits == null) "UNTYPED" else limits.problemOf(value.text, value.wire)
      // For an unsigned BIGINT the encoder may choose the wire type by the size of the number.
      if (problem == null && otherWire != null && limits.exceedsLong) problem = if (isLong(value.text)) "LOWER" else "UPPER"
      if (problem != null || otherWire != null) rows += deviation(name, otherWire, problem, value.text)
    }
    for (name <- layout.columns.keysIterator if !values.contains(name))
      rows += deviation(name, null, if (layout.required(name)) "MISSING" else "ABSENT", null)
    rows
  }
}

private object ValueChecks {
  private val Mapper = new ObjectMapper
  private val Json = new JsonFactoryBuilder().disable(JsonFactory.Feature.INTERN_FIELD_NAMES).build
  /** The number of characters of a value that a deviation shows. */
  private val ShownCharacters = 200

  final class Value(val text: String, val wire: String)
  type Values = mutable.LinkedHashMap[String, Value]

  private final class Layout(json: JsonNode) {
    // A hash map, because a table may have thousands of columns and each is looked up once a row.
    val columns: mutable.HashMap[String, Limits] =
      mutable.HashMap.from(json.get("columns").elements.asScala.map(c => c.get("name").asText -> new Limits(c)))
    val required: Set[String] = json.get("required").elements.asScala.map(_.asText).toSet
  }

  private def deviation(name: String, wire: String, problem: String, text: String): InternalRow = {
    val shown = if (text == null) null
      else text.substring(0, text.offsetByCodePoints(0, text.codePointCount(0, text.length) min ShownCharacters))
    InternalRow.fromSeq(Seq(name, wire, problem, shown).map(UTF8String.fromString))
  }

  /** Return the values of a row by column; of a repeated column, the last value. None if the text is not a JSON object. */
  private def valuesOf(image: String, branches: String): Option[Values] =
    try {
      val (values, wires) = (new Values, if (branches.isEmpty) null else textsOf(branches))
      val parser = Json.createParser(image)
      if (parser.nextToken() != JsonToken.START_OBJECT) return None
      while (parser.nextToken() == JsonToken.FIELD_NAME) {
        val name = parser.currentName
        parser.nextToken()
        val value = valueAt(parser, image)
        values(name) = if (wires == null) value else new Value(value.text, wires.getOrElse(name, null))
      }
      if (wires != null) for ((name, wire) <- wires if !values.contains(name)) values(name) = new Value(null, wire)
      Some(values)
    } catch { case NonFatal(_) => None }

  private def textsOf(text: String): Map[String, String] =
    Mapper.readTree(text).properties.asScala.map(e => e.getKey -> (if (e.getValue.isNull) null else e.getValue.asText)).toMap

  private def valueAt(parser: JsonParser, image: String): Value = parser.currentToken match {
    case JsonToken.VALUE_NULL => new Value(null, null)
    case JsonToken.VALUE_STRING => new Value(parser.getText, "string")
    case JsonToken.VALUE_TRUE | JsonToken.VALUE_FALSE => new Value(parser.getText, "boolean")
    case JsonToken.START_OBJECT => new Value(jsonText(parser, image), "object")
    case JsonToken.START_ARRAY => new Value(jsonText(parser, image), "array")
    case _ => new Value(parser.getText, "number")
  }

  /** Return the JSON text of an object or an array, unchanged. */
  private def jsonText(parser: JsonParser, image: String): String = {
    val begin = parser.currentTokenLocation.getCharOffset.toInt
    parser.skipChildren()
    image.substring(begin, parser.currentLocation.getCharOffset.toInt)
  }

  private def isLong(text: String): Boolean = try { text.toLong; true } catch { case _: NumberFormatException => false }

  /** The limits of a column: `Limits` of `type_checks/values.py`. */
  private final class Limits(json: JsonNode) {
    private def text(name: String): String = Option(json.get(name)).filterNot(_.isNull).map(_.asText).orNull
    private def texts(name: String): Array[String] =
      Option(json.get(name)).filterNot(_.isNull).map(_.elements.asScala.map(_.asText).toArray).orNull
    private def number(name: String): Long = Option(json.get(name)).filterNot(_.isNull).map(_.asLong).getOrElse(-1L)

    private val nullProblem = text("null")
    val wires: Array[String] = texts("wires")
    private val length = number("length")
    private val scale = number("scale")
    private val signed = json.get("signed").asBoolean
    private val labels = Option(texts("labels")).map(_.toSet).orNull
    private val bounds = Option(texts("ranges")).map(_.map(new BigInteger(_))).orNull
    // The part of the first range that a Long can hold; an empty range if there is none.
    private val (low, high) =
      if (bounds == null || bounds(0).compareTo(MaxLong) > 0) (1L, 0L)
      else (bounds(0).max(MinLong).longValue, bounds(1).min(MaxLong).longValue)
    private val form = text("form")
    // In an order by their names, so that a class of several units has one text.
    private val units = json.get("units").elements.asScala.map(new TimeUnit(_)).toArray.sortBy(_.reading)
    private val usual = text("usual")
    val exceedsLong: Boolean = form == "WHOLE" && bounds != null && bounds(1).compareTo(MaxLong) > 0

    /** Return the name of the class of a value; null if it is the usual one. */
    def problemOf(value: String, wire: String): String = if (value == null) nullProblem else form match {
      case "ANY" => null
      case "WHOLE" =>
        val problem = checkWhole(value)
        if (problem != null || units.isEmpty) problem else unitsOf(value.toLong)
      case "DECIMAL" => checkDecimal(value)
      case "FLOAT" => checkFloat(value, LargestFloat)
      case "DOUBLE" => checkFloat(value, Double.PositiveInfinity)
      // U+FFFD replaces bytes that the encoder could not decode, so the length of the text is not the column's.
      case "TEXT" => if (tooLong(value) && !value.contains("\ufffd")) "TOO_LONG" else null
      case "LATIN1" => if (value.exists(_ > 0xff)) "UNREADABLE" else if (tooLong(value)) "TOO_LONG" else null
      case "BASE64" => checkBase64(value)
      // A decimal point tells a number's text from base64.
      case "UNSCALED" => if (value.contains('.') || wire == "number") checkPattern(Float, value) else checkBase64(value)
      case "UNSCALED_OR_DIGITS" => checkUnscaledOrDigits(value, wire)
      case "HEX" => checkHex(value)
      case "BASE64_OR_URL" => checkBase64(plainBase64(value))
      case "HEX_OR_BASE64" => checkHexOrBase64(value)
      case "ISO_DATE" => checkPattern(IsoDate, value)
      case "ISO_TIME" => checkPattern(IsoTime, value)
      case "ISO_DATETIME" => checkPattern(IsoDateTime, value)
      case "DATE" => checkPattern(Date, value)
      case "DATETIME" => checkPattern(DateTime, value)
      case "TIMESTAMP" => checkTimestamp(value)
      case "ZONED" => checkPattern(Zoned, value)
      case "TIME" => checkPattern(Time, value)
      case "YEAR" => checkYear(value)
      case "LABEL" => if (labels != null && labels(value)) null else checkWhole(value)
      // Canal sends an empty text for a JSON value of zero bytes, which MySQL shows as null.
      case "JSON" => if (value.isEmpty || JsonTexts.isDocument(UTF8String.fromString(value))) null else "UNREADABLE"
      case "LABELS" => if (value.isEmpty || value.split(",", -1).forall(labels)) null else "UNREADABLE"
    }

    private def tooLong(value: String) = length >= 0 && value.codePointCount(0, value.length) > length

    private def checkWhole(value: String): String = {
      if (isPlainlyInRange(value)) return null
      if (bounds == null || !Whole.matcher(value).matches) return "OUTSIDE"
      val exact = new BigInteger(value)
      def between(n: Int) = exact.compareTo(bounds(n)) >= 0 && exact.compareTo(bounds(n + 1)) <= 0
      if (between(0)) null else if (between(2)) "ELSEWHERE" else "OUTSIDE"
    }

    /** Return whether a value is a number of at most 18 digits within the first range, without allocating objects. */
    private def isPlainlyInRange(value: String): Boolean = {
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

    private def checkDecimal(value: String): String = {
      if (!Decimal.matcher(value).matches) return "UNREADABLE"
      val point = value.indexOf('.')
      val before = value.take(if (point < 0) value.length else point).dropWhile(c => c == '-' || c == '0').length
      val after = if (point < 0) 0 else value.drop(point + 1).reverse.dropWhile(_ == '0').length
      val tooManyDigits = if (length < 0) before + after > MaxDigits else before > length || after > scale
      val isWrongSign = !signed && value.startsWith("-") && value.exists(c => c >= '1' && c <= '9')
      if (tooManyDigits || isWrongSign) "OUTSIDE" else null
    }

    private def checkFloat(value: String, limit: Double): String = {
      if (!Float.matcher(value).matches) return "UNREADABLE"
      val number = value.toDouble
      if (number.abs >= limit || (!signed && number < 0)) "OUTSIDE" else null
    }

    private def checkBase64(value: String): String =
      if (!UnBase64.isValidBase64(UTF8String.fromString(value))) "UNREADABLE"
      else if (length >= 0 && java.util.Base64.getMimeDecoder.decode(value).length > length) "TOO_LONG"
      else null

    private def checkHex(value: String): String =
      if (!Hex.matcher(value).matches) "UNREADABLE" else if (length >= 0 && value.length > 2 * length) "TOO_LONG" else null

    private def unitsOf(number: Long): String = readingsOf(if (number == 0) Nil else units.filter(_.permits(number)).map(_.reading).toSeq)

    /** Return the class of a value that these readings fit. */
    private def readingsOf(readings: Seq[String]): String = readings match {
      case Seq() => "SHOWS_NO_READING"
      case Seq(reading) if reading == usual => null
      case _ => readings.mkString(" or ")
    }

    private def checkUnscaledOrDigits(value: String, wire: String): String =
      if (value.contains('.') || wire == "number") if (Float.matcher(value).matches) "SHOWS_NO_READING" else "UNREADABLE"
      else {
        val problem = checkBase64(value)
        val isDigits = Whole.matcher(value).matches
        if (problem != null && !isDigits) problem
        // The encoders of base64 pad it.
        else readingsOf((if (problem == null && value.length % 4 == 0) Seq("base64") else Nil) ++ (if (isDigits) Seq("digits") else Nil))
      }

    /** Check bytes; `length` is that of a BINARY(n), whose values have n bytes: 2n hexadecimal digits are no base64 of them. */
    private def checkHexOrBase64(value: String): String = {
      val isFixed = length >= 0
      val isHex = Hex.matcher(value).matches && (!isFixed || value.length == 2 * length)
      val isBase64 = !(isFixed && isHex) && value.length % 4 == 0 && UnBase64.isValidBase64(UTF8String.fromString(plainBase64(value)))
      if (value.isEmpty) "SHOWS_NO_READING"
      else if (!isHex && !isBase64) "UNREADABLE"
      else readingsOf((if (isBase64) Seq("base64") else Nil) ++ (if (isHex) Seq("hex") else Nil))
    }

    /** Check a text, or the object that the Simple protocol's JSON has for a timestamp. */
    private def checkTimestamp(value: String): String = {
      val clock = if (value.startsWith("{")) Option(Mapper.readTree(value).get("value")).map(_.asText).getOrElse("") else value
      if (!DateTime.matcher(clock).matches) return "UNREADABLE"
      val day = clock.take(FirstDay.length)
      if ((day < FirstDay || day > LastDay) && day != "0000-00-00") "OUTSIDE" else null
    }

    private def checkYear(value: String): String = {
      if (!Year.matcher(value).matches) return "UNREADABLE"
      val year = value.toInt
      if ((year < FirstYear || year > LastYear) && year != 0) "OUTSIDE" else null
    }
  }

  /** A unit in which a number may be: `Unit` of `type_checks/values.py`. */
  private final class TimeUnit(json: JsonNode) {
    val reading: String = json.get(0).asText
    private val (low, high, step) = (json.get(1).asLong, json.get(2).asLong, json.get(3).asLong)

    def permits(number: Long): Boolean = low <= number && number <= high && number % step == 0
  }

  /** Return a base64 text in the usual alphabet. */
  private def plainBase64(value: String): String = value.replace('-', '+').replace('_', '/')

  private def checkPattern(pattern: Pattern, value: String) = if (pattern.matcher(value).matches) null else "UNREADABLE"

  private val MinLong = BigInteger.valueOf(Long.MinValue)
  private val MaxLong = BigInteger.valueOf(Long.MaxValue)
  // A DECIMAL of unknown precision becomes Spark's largest DECIMAL.
  private val MaxDigits = 38
  // Numbers from here on are rounded to infinity as a FLOAT.
  private val LargestFloat = 3.4028235677973366e38
  private val FirstYear = 1901 // and 0
  private val LastYear = 2155
  // The first and the last day that a TIMESTAMP may have in any time zone.
  private val FirstDay = "1969-12-31"
  private val LastDay = "2038-01-20"

  private val Whole = Pattern.compile("-?[0-9]+")
  private val Decimal = Pattern.compile("-?[0-9]+([.][0-9]*)?")
  private val Float = Pattern.compile("-?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?")
  // Zero dates and invalid days pass: the history stage quarantines them.
  private val Day = "[0-9]{4}-(?:0[0-9]|1[0-2])-(?:[0-2][0-9]|3[01])"
  private val Clock = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:[.][0-9]{1,6})?"
  private val Date = Pattern.compile(Day)
  private val DateTime = Pattern.compile(s"$Day $Clock")
  private val Zoned = Pattern.compile(s"${Day}T${Clock}Z")
  private val Time = Pattern.compile(
    "(?!-?838:59:59[.]0*[1-9])-?(?:0?[0-9]{2}|[1-7][0-9]{2}|8[0-2][0-9]|83[0-8]):[0-5][0-9]:[0-5][0-9](?:[.][0-9]{1,6})?")
  private val NanoClock = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:[.][0-9]{1,9})?(?:Z|[+]00:00)?"
  private val IsoDate = Pattern.compile(s"${Day}Z?")
  private val IsoTime = Pattern.compile(NanoClock)
  private val IsoDateTime = Pattern.compile(s"${Day}T$NanoClock")
  private val Hex = Pattern.compile("(?:[0-9a-f]{2})*")
  private val Year = Pattern.compile("[0-9]{1,4}")
}
