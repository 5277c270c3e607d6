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

/** A message that is to be one JSON object, read in one pass: each field is of the type that is wanted, or the message is told
  * to be wrong. `protocols/messages.py` has the types, and what comes back: STRUCT<m, wrong>.
  *
  * A function of this package's own, as Spark's `from_json` reads a value of any type into a STRING without a word. To find out
  * what it was, by patterns in the text, took longer than to read the message.
  *
  * @param wanted a JSON object: field -> its type
  */
class JsonMessage(wanted: String) extends Serializable {
  import Json._

  @transient private lazy val message = new Fields(Mapper.readTree(wanted))
  @transient private lazy val seen = new Seen

  def read(value: Array[Byte]): InternalRow =
    try {
      val found = seen.message(value, message)
      if (found == null) InternalRow(null, WrongType) else InternalRow(found, null)
    } catch {
      case NotUtf8 => InternalRow(null, InvalidUtf8)
      case NonFatal(_) => InternalRow(null, Malformed)
    }
}

/** A row out of its JSON text, which was read before: of each column its text, or the JSON text of what else it is.
  *
  * @param names a JSON array: the columns
  */
class JsonRow(names: String) extends Serializable {
  import Json._

  @transient private lazy val columns =
    new Fields(Mapper.readTree(names).elements.asScala.map(_.asText -> (AnyText: Wanted)).toArray)

  def read(image: UTF8String): InternalRow = new Reader(image.getBytes, strict = false).message(columns)
}

final class JsonTexts

object JsonTexts {
  import Json._

  /** One JSON object laid over another: the fields of the first, and those of the second that the first does not have. */
  def overlay(over: UTF8String, under: UTF8String): UTF8String = {
    val found = new Reader(over.getBytes).parts()
    for ((name, part) <- new Reader(under.getBytes).parts() if !found.contains(name)) found(name) = part
    joined(found.valuesIterator.toArray)
  }

  /** Whether a number of 17 digits and points, or more, may be the value of a field. */
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

  /** Whether a text is one JSON document and nothing else. */
  def isDocument(text: UTF8String): Boolean = {
    val parser = Factory.createParser(text.getBytes)
    try {
      val begins = parser.nextToken() != null
      parser.skipChildren()
      // A text that begins as a document may go on after it.
      begins && parser.nextToken() == null
    } catch { case NonFatal(_) => false } finally parser.close()
  }

  /** The names of an object's fields, in order; null: it is no JSON object. */
  def names(text: UTF8String): ArrayData = try new Reader(text.getBytes, strict = false).names() catch { case NonFatal(_) => null }

  /** The values of these columns of a row, as the text of a JSON array of texts; one that the row does not have is null. */
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
  // A row may have a value of 120 MB: TiDB's own limit.
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

  // --- what is wanted

  sealed trait Wanted
  final class Fields(all: Array[(String, Wanted)]) extends Wanted {
    def this(told: JsonNode) = this(told.properties.asScala.toArray.map(e => e.getKey -> wantedOf(e.getValue)))
    val types: Array[Wanted] = all.map(_._2)
    private val places = new java.util.HashMap[String, Integer]
    for (((name, _), n) <- all.zipWithIndex) places.put(name, n)
    def place(name: String): Int = { val n = places.get(name); if (n == null) -1 else n }
  }
  final class Items(val each: Wanted) extends Wanted
  // The columns of Open Protocol: objects, whatever their names, with `t`, `h`, `f` and `v`. The JSON text of the object of what
  // they have as `v`, and what the others say of them all.
  final class Columns(told: JsonNode) extends Wanted {
    // Pairs of flags: the key are the columns that have, of the first ones of a pair, just the second.
    private val keys = told.get("keys").elements.asScala.map(pair => (pair.get(0).asInt, pair.get(1).asInt)).toArray
    private val unsupported = told.get("unsupported").asInt

    def shape(names: Array[String], columns: Array[Column]): Shape = {
      val layout = new JStringBuilder("{")
      for ((name, n) <- names.zipWithIndex) {
        if (n > 0) layout.append(',')
        quoted(name, layout)
        layout.append(":{\"t\":").append(columns(n).code).append(",\"f\":").append(columns(n).flags).append('}')
      }
      def having(of: Column => Boolean): Array[UTF8String] = names.indices.filter(n => of(columns(n))).map(n => UTF8String.fromString(names(n))).toArray
      val byFlags = keys.iterator.map { case (mask, wanted) => having(c => (c.flags & mask) == wanted) }.find(_.nonEmpty)
      val key: Array[Any] = byFlags.getOrElse(having(_.ofHandle)).sortWith(_.compareTo(_) < 0).map(name => name: Any)
      new Shape(UTF8String.fromString(layout.append('}').toString), new GenericArrayData(key), !columns.exists(_.code == unsupported))
    }
  }

  /** What a column says: its type's code, or that there is none; flags; whether it is of the handle key; from where to where its
    * name and value stand in the text that is made, if it has a value.
    */
  final class Column(val hasCode: Boolean, val code: Int, val flags: Int, val ofHandle: Boolean, val from: Int, val end: Int) {
    def isValued: Boolean = end > from
  }

  /** What columns say: those of a table's rows say the same each time. */
  final class Shape(val layout: UTF8String, val key: ArrayData, val isSupported: Boolean)

  case object Text extends Wanted // a text
  case object AnyText extends Wanted // a text, or the JSON text of what else it is
  case object JsonText extends Wanted // the JSON text of what it is, but of a text
  case object Texts extends Wanted // the JSON text of an object of texts, in the order of its names
  case object Ints extends Wanted // the JSON text of an object of INTs
  case object IntNumber extends Wanted
  case object BigNumber extends Wanted
  case object Flag extends Wanted

  private def wantedOf(told: JsonNode): Wanted =
    if (told.has("*")) new Columns(Mapper.readTree(told.get("*").asText))
    else if (told.isObject) new Fields(told)
    else if (told.isArray) new Items(wantedOf(told.get(0)))
    else told.asText match {
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

  /** What was found in the place of what is wanted; the message is read to its end all the same. */
  private final val Other = new Object

  // --- reading

  /** Bytes that become more; `java.io.ByteArrayOutputStream` takes a lock for each. */
  final class Bytes(room: Int) {
    private var (all, length) = (new Array[Byte](room), 0)
    def add(each: Byte): Unit = {
      if (length == all.length) all = Arrays.copyOf(all, 2 * length + 1)
      all(length) = each
      length += 1
    }
    def add(from: Array[Byte], begin: Int, end: Int): Unit = {
      val more = end - begin
      if (length + more > all.length) all = Arrays.copyOf(all, 2 * length + more)
      System.arraycopy(from, begin, all, length, more)
      length += more
    }
    def add(number: Int): Unit = for (shift <- 0 until 32 by 8) add((number >> shift).toByte)
    def size: Int = length
    def part(from: Int, end: Int): Array[Byte] = Arrays.copyOfRange(all, from, end)
    def result: Array[Byte] = Arrays.copyOf(all, length)
  }

  /** Texts that came before, each with what it was read as: the newest of them, as many as the tables whose events may take turns.
    * Others are mostly told by their lengths.
    */
  final class Recent[T](size: Int) {
    private val kept = new Array[(Array[Byte], T)](size)
    private var turn = 0

    /** The text that stands there, if it came before; null: it did not. */
    def at(value: Array[Byte], from: Int): (Array[Byte], T) = {
      var n = 0
      while (n < size) {
        val each = kept(n)
        if (each != null) {
          val end = from + each._1.length
          if (end <= value.length && value(end - 1) == each._1.last && Arrays.equals(value, from, end, each._1, 0, each._1.length)) return each
        }
        n += 1
      }
      null
    }

    def keep(text: Array[Byte], read: T): Unit = {
      kept(turn) = (text, read)
      turn = (turn + 1) % size
    }
  }

  /** Objects that came in the messages before, and what became of them: those of types are the same in most events of a table. */
  final class Seen {
    val (texts, ints, shapes) = (new Recent[UTF8String](32), new Recent[UTF8String](32), new Recent[Shape](32))
    private val heads = new Recent[Head](64)
    private var missed = 0

    /** As `Reader.message`. The first field of a message, a schema longer than all the rest, may be one that was read before. */
    def message(value: Array[Byte], wanted: Fields): InternalRow = {
      val known = if (missed < MostMissed) heads.at(value, 0) else null
      if (known == null || !goesOn(value, known._1.length)) {
        if (!UTF8String.fromBytes(value).isValid) throw NotUtf8
        val reader = new Reader(value, seen = this)
        val found = reader.message(wanted)
        if (known == null && reader.headEnd > 0 && found != null && missed < MostMissed) {
          missed += 1
          heads.keep(Arrays.copyOf(value, reader.headEnd), new Head(reader.headPlace, found.getStruct(reader.headPlace, 0)))
        }
        found
      } else {
        missed = 0
        val (text, head) = known
        // Where the comma is the rest begins.
        val rest = Arrays.copyOfRange(value, text.length, value.length)
        if (!UTF8String.fromBytes(rest).isValid) throw NotUtf8
        rest(0) = '{'
        val reader = new Reader(rest, seen = this, readBefore = head.place)
        val found = reader.message(wanted)
        if (found != null && !reader.readAgain) found.update(head.place, head.read)
        found
      }
    }

    private def goesOn(value: Array[Byte], end: Int): Boolean = end + 1 < value.length && value(end) == ',' && value(end + 1) == '"'
  }

  /** What messages begin with: which field it is, and what it is read as. */
  final class Head(val place: Int, val read: InternalRow)
  // So many messages begin otherwise than those before them, one after the other: then nobody looks any more.
  private val MostMissed = 1000

  /** @param strict whether half of a character breaks the text: not so in one that was read before.
    * @param seen what messages before had; null: nobody asks
    * @param readBefore the field of the message that was read before; -1: none was
    */
  final class Reader(value: Array[Byte], strict: Boolean = true, seen: Seen = null, readBefore: Int = -1) {
    private val parser: JsonParser = Factory.createParser(value)
    private val checksHalves = strict && mayHaveHalves(value)
    private var other = false
    /** Where the first field of the message ends, and which it is, if it is an object of fields; else 0. */
    var (headEnd, headPlace) = (0, 0)
    /** Whether the field that was read before comes once more: the last of one name counts. */
    var readAgain = false

    /** The fields of the message; null where it, or one of them, is of another type. */
    def message(fields: Fields): InternalRow = {
      if (next() == null) throw Broken
      val found = if (parser.currentToken == JsonToken.START_OBJECT) row(fields, ofMessage = true) else read(fields)
      if (next() != null) throw Broken
      if (other || !found.isInstanceOf[InternalRow]) null else found.asInstanceOf[InternalRow]
    }

    /** The fields of an object by their names, each as its JSON text, with the name. */
    def parts(): mutable.LinkedHashMap[String, Array[Byte]] = {
      val found = mutable.LinkedHashMap.empty[String, Array[Byte]]
      if (next() != JsonToken.START_OBJECT) throw Broken
      while (next() == JsonToken.FIELD_NAME) {
        val (name, out) = (parser.currentName, new Bytes(64))
        this.name(out)
        next()
        copy(out)
        found(name) = out.result
      }
      found
    }

    /** The names of an object's fields, in order; null: it is none. */
    def names(): ArrayData = {
      if (next() != JsonToken.START_OBJECT) return null
      val found = Array.newBuilder[Any]
      while (next() == JsonToken.FIELD_NAME) {
        found += UTF8String.fromString(parser.currentName)
        next()
        parser.skipChildren()
      }
      new GenericArrayData(found.result())
    }

    /** The values of these fields, of each the first: a text, or the JSON text of what else it is. No further than need be. */
    def texts(names: Array[String]): Array[String] = {
      val (found, seen) = (new Array[String](names.length), new Array[Boolean](names.length))
      var left = names.length
      if (next() != JsonToken.START_OBJECT) return found
      while (left > 0 && next() == JsonToken.FIELD_NAME) {
        val place = names.indexOf(parser.currentName)
        next()
        if (place < 0 || seen(place)) skipped()
        else {
          found(place) = parser.currentToken match {
            case JsonToken.VALUE_NULL => null
            case JsonToken.VALUE_STRING => parser.getText
            case _ => json().toString
          }
          seen(place) = true
          left -= 1
        }
      }
      found
    }

    private def next(): JsonToken = {
      val token = parser.nextToken()
      if (checksHalves && (token == JsonToken.FIELD_NAME || token == JsonToken.VALUE_STRING) && hasHalf(parser.getText)) throw Broken
      token
    }

    /** The value at which the parser stands: null, or what is wanted, or `Other`; the parser stands at its end then. */
    private def read(wanted: Wanted): Any = {
      val token = parser.currentToken
      val found: Any = if (token == JsonToken.VALUE_NULL) null else wanted match {
        case fields: Fields => if (token == JsonToken.START_OBJECT) row(fields) else skipped()
        case items: Items => if (token == JsonToken.START_ARRAY) array(items) else skipped()
        case columns: Columns => if (token == JsonToken.START_OBJECT) this.columns(columns) else skipped()
        case Text => if (token == JsonToken.VALUE_STRING) text() else skipped()
        case AnyText => if (token == JsonToken.VALUE_STRING) text() else json()
        case JsonText => if (token == JsonToken.VALUE_STRING) skipped() else json()
        case Texts => if (token == JsonToken.START_OBJECT) texts() else nonObject(token)
        case Ints => if (token == JsonToken.START_OBJECT) ints() else nonObject(token)
        case IntNumber => if (token == JsonToken.VALUE_NUMBER_INT) number(Integer.valueOf(parser.getIntValue)) else skipped()
        case BigNumber => if (token == JsonToken.VALUE_NUMBER_INT) number(Long.box(parser.getLongValue)) else skipped()
        case Flag => if (token.isBoolean) Boolean.box(parser.getBooleanValue) else skipped()
      }
      if (found.asInstanceOf[AnyRef] eq Other) other = true
      found
    }

    private def row(fields: Fields, ofMessage: Boolean = false): InternalRow = {
      val values = new Array[Any](fields.types.length)
      var isFirst = ofMessage && !checksHalves
      while (next() == JsonToken.FIELD_NAME) {
        val place = fields.place(parser.currentName)
        val isHead = next() == JsonToken.START_OBJECT && isFirst && place >= 0 && fields.types(place).isInstanceOf[Fields]
        isFirst = false
        if (place < 0) skipped() else values(place) = read(fields.types(place))
        if (isHead) {
          headPlace = place
          headEnd = parser.currentLocation.getByteOffset.toInt
        }
        if (ofMessage && place >= 0 && place == readBefore) readAgain = true
      }
      new GenericInternalRow(values)
    }

    private def array(items: Items): ArrayData = {
      val found = Array.newBuilder[Any]
      while (next() != JsonToken.END_ARRAY) found += read(items.each)
      new GenericArrayData(found.result())
    }

    /** STRUCT<text, valued, complete, supported, layout, key_columns>: as `messages.columns_of`. */
    private def columns(wanted: Columns): InternalRow = {
      val (found, text, shape) = (mutable.LinkedHashMap.empty[String, Column], new Bytes(512), new Bytes(256))
      hasTwice = false
      text.add('{'.toByte)
      while (next() == JsonToken.FIELD_NAME) {
        val (name, begin) = (parser.currentName, this.begin)
        val column = if (next() == JsonToken.START_OBJECT) this.column(begin, text) else {
          if (parser.currentToken != JsonToken.VALUE_NULL) { other = true; skipped() }
          NoColumn
        }
        shape.add(value, begin, behind(begin))
        shape.add(column.code)
        shape.add(column.flags)
        shape.add((if (column.ofHandle) 1 else 0).toByte)
        hasTwice |= found.put(name, column).isDefined
      }
      val all = found.valuesIterator.toArray
      val isValued = all.forall(_.isValued)
      val isComplete = isValued && all.forall(_.hasCode)
      // Of columns, or values, that come twice the last counts.
      val texts = if (hasTwice) joined(all.filter(_.isValued).map(c => text.part(c.from, c.end))) else {
        text.add('}'.toByte)
        UTF8String.fromBytes(text.result)
      }
      val told = if (isComplete) this.shape(shape.result, wanted.shape(found.keysIterator.toArray, all)) else null
      if (told == null) InternalRow(texts, isValued, isComplete, false, null, null)
      else InternalRow(texts, isValued, isComplete, told.isSupported, told.layout, told.key)
    }

    private var hasTwice = false

    private def column(name: Int, text: Bytes): Column = {
      var (hasCode, code, flags, ofHandle, from, end) = (false, 0, 0, false, 0, 0)
      while (next() == JsonToken.FIELD_NAME) {
        val field = parser.currentName
        next()
        field match {
          case "v" =>
            if (end > from) hasTwice = true
            if (text.size > 1) text.add(','.toByte)
            from = text.size
            this.name(text, name)
            copy(text)
            end = text.size
          case "t" => read(IntNumber) match { case n: Integer => hasCode = true; code = n; case _ => hasCode = false }
          case "f" => read(IntNumber) match { case n: Integer => flags = n; case _ => flags = 0 }
          case "h" => read(Flag) match { case is: java.lang.Boolean => ofHandle = is; case _ => ofHandle = false }
          case _ => skipped()
        }
      }
      new Column(hasCode, code, flags, ofHandle, from, end)
    }

    private def shape(of: Array[Byte], made: => Shape): Shape = {
      if (seen == null || of.isEmpty) return made
      val before = seen.shapes.at(of, 0)
      if (before != null && before._1.length == of.length) return before._2
      val found = made
      seen.shapes.keep(of, found)
      found
    }

    private def number(value: => Any): Any = try value catch { case NonFatal(_) => Other }

    private def skipped(): AnyRef = {
      if (!checksHalves) parser.skipChildren()
      else if (parser.currentToken.isStructStart) {
        var depth = 1
        while (depth > 0) { val token = next(); if (token.isStructStart) depth += 1 else if (token.isStructEnd) depth -= 1 }
      }
      Other
    }

    /** A text in the place of an object is another type; what else may stand there is for the decoder to judge. */
    private def nonObject(token: JsonToken): Any = if (token == JsonToken.VALUE_STRING) skipped() else json()

    // --- JSON texts: without blanks, and else to the letter as they came

    private def begin: Int = parser.currentTokenLocation.getByteOffset.toInt

    /** Where the text ends whose quote stands at `from`: behind its other quote. What is wrong in it, the parser tells. */
    private def behind(from: Int): Int = {
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
        skipped()
        unblanked(out, from, parser.currentLocation.getByteOffset.toInt)
      } else scalar(out)

    /** What stands there, without the blanks between its parts. */
    private def unblanked(out: Bytes, from: Int, end: Int): Unit = {
      var (at, start) = (from, from)
      while (at < end) {
        val each = value(at)
        if (each == '"') at = behind(at)
        else {
          if (each == ' ' || each == '\n' || each == '\r' || each == '\t') { out.add(value, start, at); start = at + 1 }
          at += 1
        }
      }
      out.add(value, start, end)
    }

    /** A name, in its quotes, and the colon: where the parser stands may be behind it. */
    private def name(out: Bytes): Unit = name(out, begin)

    private def name(out: Bytes, from: Int): Unit = {
      out.add(value, from, behind(from))
      out.add(':'.toByte)
    }

    private def scalar(out: Bytes): Unit =
      if (parser.currentToken == JsonToken.VALUE_STRING) {
        val from = begin
        out.add(value, from, behind(from))
      } else {
        val text = parser.getText.getBytes(US_ASCII)
        out.add(text, 0, text.length)
      }

    /** A text's characters. Without an escape among them they stand there as Spark wants them. */
    private def text(): UTF8String = {
      val from = begin + 1
      var at = from
      while (value(at) != '"' && value(at) != '\\') at += 1
      if (value(at) == '"') UTF8String.fromBytes(Arrays.copyOfRange(value, from, at)) else UTF8String.fromString(parser.getText)
    }

    private def texts(): Any = known(_.texts, entries(JsonToken.VALUE_STRING, _ => true, sorted = true))

    private def ints(): Any =
      known(_.ints, entries(JsonToken.VALUE_NUMBER_INT, p => try { p.getIntValue; true } catch { case NonFatal(_) => false }, sorted = false))

    /** What an object is read as, out of what it was in a message before, to the letter. */
    private def known(of: Seen => Recent[UTF8String], read: => Any): Any = {
      if (seen == null || checksHalves) return read
      val (from, recent) = (begin, of(seen))
      val before = recent.at(value, from)
      if (before != null) {
        skipped()
        return before._2
      }
      val found = read
      found match {
        case text: UTF8String => recent.keep(Arrays.copyOfRange(value, from, parser.currentLocation.getByteOffset.toInt), text)
        case _ =>
      }
      found
    }

    /** An object all of whose values are of one type. */
    private def entries(token: JsonToken, fits: JsonParser => Boolean, sorted: Boolean): Any = {
      val found = Array.newBuilder[Array[Byte]]
      var fine = true
      while (next() == JsonToken.FIELD_NAME) {
        val out = new Bytes(64)
        name(out)
        if (next() == token && fits(parser)) scalar(out) else { fine = false; skipped() }
        found += out.result
      }
      if (!fine) return Other
      val all = found.result()
      if (sorted) Arrays.sort(all, (a: Array[Byte], b: Array[Byte]) => Arrays.compareUnsigned(a, b))
      joined(all)
    }
  }

  /** An object of these fields, each with its name. */
  def joined(parts: Array[Array[Byte]]): UTF8String = {
    val out = new Bytes(256)
    out.add('{'.toByte)
    for (n <- parts.indices) { if (n > 0) out.add(','.toByte); out.add(parts(n), 0, parts(n).length) }
    out.add('}'.toByte)
    UTF8String.fromBytes(out.result)
  }

  object NotUtf8 extends RuntimeException(null, null, false, false)
  private object Broken extends RuntimeException(null, null, false, false)

  /** Whether there is an escape of a half of a character (`\ud800`). */
  private def mayHaveHalves(value: Array[Byte]): Boolean = {
    var at = 0
    while (at + 2 < value.length) {
      if (value(at) == '\\' && value(at + 1) == 'u' && (value(at + 2) == 'd' || value(at + 2) == 'D')) return true
      at += 1
    }
    false
  }

  /** Whether one half of a character stands there without the other. */
  private def hasHalf(text: String): Boolean = {
    var at = 0
    while (at < text.length) {
      val point = text.codePointAt(at)
      if (point >= Character.MIN_SURROGATE && point <= Character.MAX_SURROGATE) return true
      at += Character.charCount(point)
    }
    false
  }
}
