package cdc_assets

import java.lang.{StringBuilder => JStringBuilder}
import java.nio.charset.StandardCharsets.US_ASCII
import java.util.Arrays

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import com.fasterxml.jackson.core.io.JsonStringEncoder
import com.fasterxml.jackson.core.{JsonFactory, JsonFactoryBuilder, JsonParser, JsonToken, StreamReadConstraints}
import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.catalyst.util.{ArrayData, GenericArrayData}
import org.apache.spark.unsafe.types.UTF8String

/** Reads a message that must be one JSON object, and checks the type of each field. `protocols/messages.py` describes the types
  * and the result, STRUCT<m, wrong>.
  *
  * A native function, because Spark's `from_json` converts a value of any type to STRING without an error.
  *
  * @param types a JSON object: field -> its expected type
  */
class JsonMessage(types: String) extends Serializable {
  import Json._

  @transient private lazy val fields = new Fields(Mapper.readTree(types))
  @transient private lazy val cache = new ReadCache

  def read(value: Array[Byte]): InternalRow =
    try {
      val row = cache.readMessage(value, fields)
      if (row == null) InternalRow(null, WrongType) else InternalRow(row, null)
    } catch {
      case NotUtf8 => InternalRow(null, InvalidUtf8)
      case NonFatal(_) => InternalRow(null, Malformed)
    }
}

/** Reads columns of a row from its JSON text, which `JsonMessage` has checked: a text value as it is, another value as JSON.
  *
  * @param names the columns, a JSON array
  */
class JsonRow(names: String) extends Serializable {
  import Json._

  @transient private lazy val columns =
    new Fields(Mapper.readTree(names).elements.asScala.map(_.asText -> (AnyText: Expected)).toArray)

  def read(image: UTF8String): InternalRow = new Reader(image.getBytes, strict = false).message(columns)
}

final class JsonTexts

object JsonTexts {
  import Json._

  /** Return a JSON object with the fields of `over`, and those fields of `under` that `over` does not have. */
  def overlay(over: UTF8String, under: UTF8String): UTF8String = {
    val fields = new Reader(over.getBytes).fieldTexts()
    for ((name, text) <- new Reader(under.getBytes).fieldTexts() if !fields.contains(name)) fields(name) = text
    objectOf(fields.valuesIterator.toArray)
  }

  /** Return whether a number of 17 or more digits and points may be the value of a field. */
  def longNumber(text: UTF8String): Boolean = {
    val value = text.getBytes
    val end = value.length - LongNumber
    var at = 0
    while (at < end) {
      if (value(at) == ':') {
        at += 1
        while (at < end && (value(at) <= ' ' && value(at) >= 0)) at += 1
        if (at < end && (value(at) == '-' || value(at) == '+')) at += 1
        val from = at
        while (at < value.length && (value(at) == '.' || (value(at) >= '0' && value(at) <= '9'))) at += 1
        if (at - from >= LongNumber) return true
      } else at += 1
    }
    false
  }

  /** Return whether a text is exactly one JSON document. */
  def isDocument(text: UTF8String): Boolean = {
    val parser = Factory.createParser(text.getBytes)
    try {
      val begins = parser.nextToken() != null
      parser.skipChildren()
      // The text must end with the document.
      begins && parser.nextToken() == null
    } catch { case NonFatal(_) => false } finally parser.close()
  }

  /** Return the names of an object's fields in order; null if the text is not a JSON object. */
  def names(text: UTF8String): ArrayData = try new Reader(text.getBytes, strict = false).names() catch { case NonFatal(_) => null }

  /** Return the values of columns of a row as a JSON array of texts; the value of a missing column is null. */
  def key(image: UTF8String, columns: ArrayData): UTF8String = {
    val names = Array.tabulate(columns.numElements)(n => if (columns.isNullAt(n)) null else columns.getUTF8String(n).toString)
    val out = new JStringBuilder("[")
    for ((value, n) <- new Reader(image.getBytes, strict = false).texts(names).zipWithIndex) {
      if (n > 0) out.append(',')
      if (value == null) out.append("null")
      else {
        quoted(value, out)
      }
    }
    UTF8String.fromString(out.append(']').toString)
  }
}

private object Json {
  val Mapper = new ObjectMapper
  // TiDB allows values of up to 120 MB.
  val Factory: JsonFactory = new JsonFactoryBuilder().disable(JsonFactory.Feature.INTERN_FIELD_NAMES).streamReadConstraints(
    StreamReadConstraints.builder.maxStringLength(Int.MaxValue).build).build
  val Quoting: JsonStringEncoder = JsonStringEncoder.getInstance
  val LongNumber = 17

  def quoted(text: String, out: JStringBuilder): Unit = {
    out.append('"')
    Quoting.quoteAsString(text, out)
    out.append('"')
  }

  val InvalidUtf8: UTF8String = UTF8String.fromString("invalid_utf8")
  val Malformed: UTF8String = UTF8String.fromString("malformed_json")
  val WrongType: UTF8String = UTF8String.fromString("wrong_type")

  // --- expected types

  sealed trait Expected
  /** An object with these fields; other fields are skipped. */
  final class Fields(all: Array[(String, Expected)]) extends Expected {
    def this(json: JsonNode) = this(json.properties.asScala.toArray.map(e => e.getKey -> expectedOf(e.getValue)))
    val types: Array[Expected] = all.map(_._2)
    private val indices = new java.util.HashMap[String, Integer]
    for (((name, _), n) <- all.zipWithIndex) indices.put(name, n)
    /** Return a field's index in the result; -1 if the field is skipped. */
    def index(name: String): Int = { val n = indices.get(name); if (n == null) -1 else n }
  }
  /** An array of items of one type. */
  final class Items(val item: Expected) extends Expected
  /** The columns of Open Protocol: an object of objects with `t`, `h`, `f` and `v`, under any names. They are read as the JSON text
    * of the object of all `v`, and the layout that the other fields state.
    */
  final class Columns(json: JsonNode) extends Expected {
    // Pairs of flag masks: the key consists of the columns that have, of the first mask, exactly the second.
    private val keys = json.get("keys").elements.asScala.map(pair => (pair.get(0).asInt, pair.get(1).asInt)).toArray
    private val unsupported = json.get("unsupported").asInt

    def layoutOf(names: Array[String], columns: Array[Column]): ColumnLayout = {
      val layout = new JStringBuilder("{")
      for ((name, n) <- names.zipWithIndex) {
        if (n > 0) layout.append(',')
        quoted(name, layout)
        layout.append(":{\"t\":").append(columns(n).code).append(",\"f\":").append(columns(n).flags).append('}')
      }
      def namesWhere(condition: Column => Boolean): Array[UTF8String] =
        names.indices.filter(n => condition(columns(n))).map(n => UTF8String.fromString(names(n))).toArray
      val byFlags = keys.iterator.map { case (mask, flags) => namesWhere(c => (c.flags & mask) == flags) }.find(_.nonEmpty)
      val key: Array[Any] = byFlags.getOrElse(namesWhere(_.isHandle)).sortWith(_.compareTo(_) < 0).map(name => name: Any)
      new ColumnLayout(UTF8String.fromString(layout.append('}').toString), new GenericArrayData(key), !columns.exists(_.code == unsupported))
    }
  }

  /** A column of a message.
    *
    * @param hasCode  whether the column states a type code
    * @param code     the type code
    * @param flags    the flags
    * @param isHandle whether the column belongs to the handle key
    * @param from     where its name and value begin in the text of all values
    * @param end      where they end there; equal to `from` if the column has no value
    */
  final class Column(val hasCode: Boolean, val code: Int, val flags: Int, val isHandle: Boolean, val from: Int, val end: Int) {
    def hasValue: Boolean = end > from
  }

  /** The layout that the columns of a message state; it is the same for most rows of a table. */
  final class ColumnLayout(val layout: UTF8String, val key: ArrayData, val isSupported: Boolean)

  case object Text extends Expected // a text
  case object AnyText extends Expected // a text, or the JSON text of another value
  case object JsonText extends Expected // the JSON text of any value except a text
  case object Texts extends Expected // the JSON text of an object of texts, sorted by name
  case object Ints extends Expected // the JSON text of an object of INTs
  case object IntNumber extends Expected
  case object BigNumber extends Expected
  case object Flag extends Expected

  private def expectedOf(json: JsonNode): Expected =
    if (json.has("*")) new Columns(Mapper.readTree(json.get("*").asText))
    else if (json.isObject) new Fields(json)
    else if (json.isArray) new Items(expectedOf(json.get(0)))
    else json.asText match {
      case "text" => Text
      case "any" => AnyText
      case "json" => JsonText
      case "texts" => Texts
      case "ints" => Ints
      case "int" => IntNumber
      case "bigint" => BigNumber
      case "boolean" => Flag
    }

  private val NoColumn = new Column(false, 0, 0, false, 0, 0)

  /** Stands for a value of another type than expected; the message is read to its end all the same. */
  private final val OtherType = new Object

  // --- reading

  /** A growing array of bytes; `java.io.ByteArrayOutputStream` locks at each byte. */
  final class Bytes(capacity: Int) {
    private var (buffer, length) = (new Array[Byte](capacity), 0)
    def add(each: Byte): Unit = {
      if (length == buffer.length) buffer = Arrays.copyOf(buffer, 2 * length + 1)
      buffer(length) = each
      length += 1
    }
    def add(from: Array[Byte], begin: Int, end: Int): Unit = {
      val more = end - begin
      if (length + more > buffer.length) buffer = Arrays.copyOf(buffer, 2 * length + more)
      System.arraycopy(from, begin, buffer, length, more)
      length += more
    }
    def add(number: Int): Unit = for (shift <- 0 until 32 by 8) add((number >> shift).toByte)
    def size: Int = length
    def part(from: Int, end: Int): Array[Byte] = Arrays.copyOfRange(buffer, from, end)
    def result: Array[Byte] = Arrays.copyOf(buffer, length)
  }

  /** The last distinct texts of messages, each with the value that was read from it.
    *
    * @param size the number of texts; it should exceed the number of tables whose events alternate
    */
  final class RecentTexts[T](size: Int) {
    private val entries = new Array[(Array[Byte], T)](size)
    private var next = 0

    /** Return the entry whose text is at this position of `value`; null if no text is. */
    def at(value: Array[Byte], from: Int): (Array[Byte], T) = {
      var n = 0
      while (n < size) {
        val each = entries(n)
        if (each != null) {
          val end = from + each._1.length
          if (end <= value.length && value(end - 1) == each._1.last && Arrays.equals(value, from, end, each._1, 0, each._1.length)) return each
        }
        n += 1
      }
      null
    }

    def add(text: Array[Byte], read: T): Unit = {
      entries(next) = (text, read)
      next = (next + 1) % size
    }
  }

  /** Cached results for parts of messages: the objects that state types are equal in most events of a table. */
  final class ReadCache {
    val texts, ints = new RecentTexts[UTF8String](32)
    val layouts = new RecentTexts[ColumnLayout](32)
    private val heads = new RecentTexts[Head](64)
    private var misses = 0

    /** Read a message as `Reader.message` does.
      *
      * The first field of a message may be a schema that is longer than the rest. If the first field is cached, only the rest
      * is parsed.
      */
    def readMessage(value: Array[Byte], fields: Fields): InternalRow = {
      val cached = if (misses < MaxMisses) heads.at(value, 0) else null
      if (cached == null || !hasNextField(value, cached._1.length)) {
        if (!UTF8String.fromBytes(value).isValid) throw NotUtf8
        val reader = new Reader(value, cache = this)
        val row = reader.message(fields)
        if (cached == null && reader.headEnd > 0 && row != null && misses < MaxMisses) {
          misses += 1
          heads.add(Arrays.copyOf(value, reader.headEnd), new Head(reader.headIndex, row.getStruct(reader.headIndex, 0)))
        }
        row
      } else {
        misses = 0
        val (text, head) = cached
        // The rest begins with a comma; replace the comma by the brace of an object.
        val rest = Arrays.copyOfRange(value, text.length, value.length)
        if (!UTF8String.fromBytes(rest).isValid) throw NotUtf8
        rest(0) = '{'
        val reader = new Reader(rest, cache = this, cachedIndex = head.index)
        val row = reader.message(fields)
        if (row != null && !reader.hasCachedFieldAgain) row.update(head.index, head.row)
        row
      }
    }

    private def hasNextField(value: Array[Byte], end: Int): Boolean =
      end + 1 < value.length && value(end) == ',' && value(end + 1) == '"'
  }

  /** The first field of messages: its index in the result, and its value. */
  final class Head(val index: Int, val row: InternalRow)
  /** After this number of consecutive misses the cache of first fields is not used any more. */
  private val MaxMisses = 1000

  /** Reads one JSON text.
    *
    * @param value       the text
    * @param strict      whether an escaped half of a surrogate pair is an error; a text that was read before has been checked
    * @param cache       results of earlier messages; null: no cache
    * @param cachedIndex the index of the field of the message that was taken from the cache; -1: none was
    */
  final class Reader(value: Array[Byte], strict: Boolean = true, cache: ReadCache = null, cachedIndex: Int = -1) {
    private val parser: JsonParser = Factory.createParser(value)
    private val checksSurrogates = strict && mayHaveSurrogates(value)
    private var hasOtherType = false
    /** Where the message's first field ends, and its index, if the field is an object with expected fields; else 0. */
    var (headEnd, headIndex) = (0, 0)
    /** Whether the rest of the message repeats the cached field: of fields with one name the last counts. */
    var hasCachedFieldAgain = false

    /** Return the fields of the message; null if the message or a field is of another type. */
    def message(fields: Fields): InternalRow = {
      if (next() == null) throw Broken
      val result = if (parser.currentToken == JsonToken.START_OBJECT) row(fields, isMessage = true) else read(fields)
      if (next() != null) throw Broken
      if (hasOtherType || !result.isInstanceOf[InternalRow]) null else result.asInstanceOf[InternalRow]
    }

    /** Return the fields of an object: name -> the JSON text of name and value. */
    def fieldTexts(): mutable.LinkedHashMap[String, Array[Byte]] = {
      val texts = mutable.LinkedHashMap.empty[String, Array[Byte]]
      if (next() != JsonToken.START_OBJECT) throw Broken
      while (next() == JsonToken.FIELD_NAME) {
        val (name, out) = (parser.currentName, new Bytes(64))
        copyName(out)
        next()
        copy(out)
        texts(name) = out.result
      }
      texts
    }

    /** Return the names of an object's fields in order; null if the text is not an object. */
    def names(): ArrayData = {
      if (next() != JsonToken.START_OBJECT) return null
      val result = Array.newBuilder[Any]
      while (next() == JsonToken.FIELD_NAME) {
        result += UTF8String.fromString(parser.currentName)
        next()
        parser.skipChildren()
      }
      new GenericArrayData(result.result())
    }

    /** Return the values of fields, of a repeated field the first: a text as it is, another value as JSON. Reading stops when
      * all fields have a value.
      */
    def texts(names: Array[String]): Array[String] = {
      val (result, isRead) = (new Array[String](names.length), new Array[Boolean](names.length))
      var left = names.length
      if (next() != JsonToken.START_OBJECT) return result
      while (left > 0 && next() == JsonToken.FIELD_NAME) {
        val index = names.indexOf(parser.currentName)
        next()
        if (index < 0 || isRead(index)) skip()
        else {
          result(index) = parser.currentToken match {
            case JsonToken.VALUE_NULL => null
            case JsonToken.VALUE_STRING => parser.getText
            case _ => json().toString
          }
          isRead(index) = true
          left -= 1
        }
      }
      result
    }

    private def next(): JsonToken = {
      val token = parser.nextToken()
      if (checksSurrogates && (token == JsonToken.FIELD_NAME || token == JsonToken.VALUE_STRING) && hasLoneSurrogate(parser.getText)) throw Broken
      token
    }

    /** Return the current value: null, a value of the expected type, or `OtherType`. The parser is at the value's end then. */
    private def read(expected: Expected): Any = {
      val token = parser.currentToken
      val result: Any = if (token == JsonToken.VALUE_NULL) null else expected match {
        case fields: Fields => if (token == JsonToken.START_OBJECT) row(fields) else skip()
        case items: Items => if (token == JsonToken.START_ARRAY) array(items) else skip()
        case columns: Columns => if (token == JsonToken.START_OBJECT) this.columns(columns) else skip()
        case Text => if (token == JsonToken.VALUE_STRING) text() else skip()
        case AnyText => if (token == JsonToken.VALUE_STRING) text() else json()
        case JsonText => if (token == JsonToken.VALUE_STRING) skip() else json()
        case Texts => if (token == JsonToken.START_OBJECT) texts() else nonObject(token)
        case Ints => if (token == JsonToken.START_OBJECT) ints() else nonObject(token)
        case IntNumber => if (token == JsonToken.VALUE_NUMBER_INT) number(Integer.valueOf(parser.getIntValue)) else skip()
        case BigNumber => if (token == JsonToken.VALUE_NUMBER_INT) number(Long.box(parser.getLongValue)) else skip()
        case Flag => if (token.isBoolean) Boolean.box(parser.getBooleanValue) else skip()
      }
      if (result.asInstanceOf[AnyRef] eq OtherType) hasOtherType = true
      result
    }

    private def row(fields: Fields, isMessage: Boolean = false): InternalRow = {
      val values = new Array[Any](fields.types.length)
      var isFirst = isMessage && !checksSurrogates
      while (next() == JsonToken.FIELD_NAME) {
        val index = fields.index(parser.currentName)
        val isHead = next() == JsonToken.START_OBJECT && isFirst && index >= 0 && fields.types(index).isInstanceOf[Fields]
        isFirst = false
        if (index < 0) skip() else values(index) = read(fields.types(index))
        if (isHead) {
          headIndex = index
          headEnd = parser.currentLocation.getByteOffset.toInt
        }
        if (isMessage && index >= 0 && index == cachedIndex) hasCachedFieldAgain = true
      }
      new GenericInternalRow(values)
    }

    private def array(items: Items): ArrayData = {
      val values = Array.newBuilder[Any]
      while (next() != JsonToken.END_ARRAY) values += read(items.item)
      new GenericArrayData(values.result())
    }

    /** Return STRUCT<text, valued, complete, supported, layout, key_columns>, which `messages.columns_of` describes. */
    private def columns(expected: Columns): InternalRow = {
      val (columns, text, layoutText) = (mutable.LinkedHashMap.empty[String, Column], new Bytes(512), new Bytes(256))
      hasRepeats = false
      text.add('{'.toByte)
      while (next() == JsonToken.FIELD_NAME) {
        val (name, begin) = (parser.currentName, this.begin)
        val column = if (next() == JsonToken.START_OBJECT) this.column(begin, text) else {
          if (parser.currentToken != JsonToken.VALUE_NULL) { hasOtherType = true; skip() }
          NoColumn
        }
        layoutText.add(value, begin, stringEnd(begin))
        layoutText.add(column.code)
        layoutText.add(column.flags)
        layoutText.add((if (column.isHandle) 1 else 0).toByte)
        hasRepeats |= columns.put(name, column).isDefined
      }
      val all = columns.valuesIterator.toArray
      val haveValues = all.forall(_.hasValue)
      val areComplete = haveValues && all.forall(_.hasCode)
      // Of repeated columns or values the last counts.
      val values = if (hasRepeats) objectOf(all.filter(_.hasValue).map(c => text.part(c.from, c.end))) else {
        text.add('}'.toByte)
        UTF8String.fromBytes(text.result)
      }
      val layout = if (areComplete) cachedLayout(layoutText.result, expected.layoutOf(columns.keysIterator.toArray, all)) else null
      if (layout == null) InternalRow(values, haveValues, areComplete, false, null, null)
      else InternalRow(values, haveValues, areComplete, layout.isSupported, layout.layout, layout.key)
    }

    private var hasRepeats = false

    /** Return a column, and add its name and value to the text of all values; its name begins at `name`. */
    private def column(name: Int, text: Bytes): Column = {
      var (hasCode, code, flags, isHandle, from, end) = (false, 0, 0, false, 0, 0)
      while (next() == JsonToken.FIELD_NAME) {
        val field = parser.currentName
        next()
        field match {
          case "v" =>
            if (end > from) hasRepeats = true
            if (text.size > 1) text.add(','.toByte)
            from = text.size
            copyName(text, name)
            copy(text)
            end = text.size
          case "t" => read(IntNumber) match { case n: Integer => hasCode = true; code = n; case _ => hasCode = false }
          case "f" => read(IntNumber) match { case n: Integer => flags = n; case _ => flags = 0 }
          case "h" => read(Flag) match { case flag: java.lang.Boolean => isHandle = flag; case _ => isHandle = false }
          case _ => skip()
        }
      }
      new Column(hasCode, code, flags, isHandle, from, end)
    }

    private def cachedLayout(text: Array[Byte], layout: => ColumnLayout): ColumnLayout = {
      if (cache == null || text.isEmpty) return layout
      val cached = cache.layouts.at(text, 0)
      if (cached != null && cached._1.length == text.length) return cached._2
      val computed = layout
      cache.layouts.add(text, computed)
      computed
    }

    private def number(value: => Any): Any = try value catch { case NonFatal(_) => OtherType }

    /** Skip the current value, and return `OtherType`. */
    private def skip(): AnyRef = {
      if (!checksSurrogates) parser.skipChildren()
      else if (parser.currentToken.isStructStart) {
        var depth = 1
        while (depth > 0) { val token = next(); if (token.isStructStart) depth += 1 else if (token.isStructEnd) depth -= 1 }
      }
      OtherType
    }

    /** Read a value where an object is expected: a text is of another type; other values are returned as JSON for the decoder. */
    private def nonObject(token: JsonToken): Any = if (token == JsonToken.VALUE_STRING) skip() else json()

    // --- JSON texts: copied without blanks, otherwise unchanged

    private def begin: Int = parser.currentTokenLocation.getByteOffset.toInt

    /** Return the position after the closing quote of the string that begins at `from`; the parser reports errors in the string. */
    private def stringEnd(from: Int): Int = {
      var at = from + 1
      while (value(at) != '"') at += (if (value(at) == '\\') 2 else 1)
      at + 1
    }

    private def json(): UTF8String = {
      val out = new Bytes(256)
      copy(out)
      UTF8String.fromBytes(out.result)
    }

    private def copy(out: Bytes): Unit =
      if (parser.currentToken.isStructStart) {
        val from = begin
        skip()
        copyWithoutBlanks(out, from, parser.currentLocation.getByteOffset.toInt)
      } else scalar(out)

    /** Copy a JSON text without the blanks between its tokens. */
    private def copyWithoutBlanks(out: Bytes, from: Int, end: Int): Unit = {
      var (at, start) = (from, from)
      while (at < end) {
        val each = value(at)
        if (each == '"') at = stringEnd(at)
        else {
          if (each == ' ' || each == '\n' || each == '\r' || each == '\t') { out.add(value, start, at); start = at + 1 }
          at += 1
        }
      }
      out.add(value, start, end)
    }

    /** Copy the current field's name with its quotes, and a colon. */
    private def copyName(out: Bytes): Unit = copyName(out, begin)

    private def copyName(out: Bytes, from: Int): Unit = {
      out.add(value, from, stringEnd(from))
      out.add(':'.toByte)
    }

    private def scalar(out: Bytes): Unit =
      if (parser.currentToken == JsonToken.VALUE_STRING) {
        val from = begin
        out.add(value, from, stringEnd(from))
      } else {
        val text = parser.getText.getBytes(US_ASCII)
        out.add(text, 0, text.length)
      }

    /** Return the current string. Without escapes its bytes are already in Spark's format. */
    private def text(): UTF8String = {
      val from = begin + 1
      var at = from
      while (value(at) != '"' && value(at) != '\\') at += 1
      if (value(at) == '"') UTF8String.fromBytes(Arrays.copyOfRange(value, from, at)) else UTF8String.fromString(parser.getText)
    }

    private def texts(): Any = cachedObject(_.texts, objectOfType(JsonToken.VALUE_STRING, _ => true, sorted = true))

    private def ints(): Any =
      cachedObject(_.ints, objectOfType(JsonToken.VALUE_NUMBER_INT, p => try { p.getIntValue; true } catch { case NonFatal(_) => false }, sorted = false))

    /** Return the cached result for the current object if an earlier message had an identical one, else read the object. */
    private def cachedObject(select: ReadCache => RecentTexts[UTF8String], read: => Any): Any = {
      if (cache == null || checksSurrogates) return read
      val (from, recent) = (begin, select(cache))
      val cached = recent.at(value, from)
      if (cached != null) {
        skip()
        return cached._2
      }
      val result = read
      result match {
        case text: UTF8String => recent.add(Arrays.copyOfRange(value, from, parser.currentLocation.getByteOffset.toInt), text)
        case _ =>
      }
      result
    }

    /** Return the JSON text of an object whose values must all be of one type. */
    private def objectOfType(token: JsonToken, isValid: JsonParser => Boolean, sorted: Boolean): Any = {
      val fields = Array.newBuilder[Array[Byte]]
      var areValid = true
      while (next() == JsonToken.FIELD_NAME) {
        val out = new Bytes(64)
        copyName(out)
        if (next() == token && isValid(parser)) scalar(out) else { areValid = false; skip() }
        fields += out.result
      }
      if (!areValid) return OtherType
      val all = fields.result()
      if (sorted) Arrays.sort(all, (a: Array[Byte], b: Array[Byte]) => Arrays.compareUnsigned(a, b))
      objectOf(all)
    }
  }

  /** Return a JSON object of these fields; each is the JSON text of name and value. */
  def objectOf(fields: Array[Array[Byte]]): UTF8String = {
    val out = new Bytes(256)
    out.add('{'.toByte)
    for (n <- fields.indices) { if (n > 0) out.add(','.toByte); out.add(fields(n), 0, fields(n).length) }
    out.add('}'.toByte)
    UTF8String.fromBytes(out.result)
  }

  object NotUtf8 extends RuntimeException(null, null, false, false)
  private object Broken extends RuntimeException(null, null, false, false)

  /** Return whether a text has an escape that may be a half of a surrogate pair (`\ud800`). */
  private def mayHaveSurrogates(value: Array[Byte]): Boolean = {
    var at = 0
    while (at + 2 < value.length) {
      if (value(at) == '\\' && value(at + 1) == 'u' && (value(at + 2) == 'd' || value(at + 2) == 'D')) return true
      at += 1
    }
    false
  }

  /** Return whether a text has one half of a surrogate pair without the other. */
  private def hasLoneSurrogate(text: String): Boolean = {
    var at = 0
    while (at < text.length) {
      val point = text.codePointAt(at)
      if (point >= Character.MIN_SURROGATE && point <= Character.MAX_SURROGATE) return true
      at += Character.charCount(point)
    }
    false
  }
}
