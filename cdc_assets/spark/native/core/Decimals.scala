package cdc_assets

import java.math.{BigDecimal, BigInteger}

import scala.util.control.NonFatal

import org.apache.spark.unsafe.types.UTF8String

final class Decimals

/** Numbers of more digits than Spark's DECIMAL has, as texts. */
object Decimals {
  // MySQL's decimals have at most 65 digits; an exponent must not make a text of any length.
  private val MostDigits = 100

  /** Return the digits of a decimal, from its unscaled value in big-endian two's complement; null without bytes. */
  def unscaled(bytes: Array[Byte], scale: Int): UTF8String =
    if (bytes.isEmpty || bytes.length > MostDigits) null
    else UTF8String.fromString(new BigDecimal(new BigInteger(bytes), scale).toPlainString)

  /** Return a number without exponent and without zeros at the end; null if the text is no number, or has too many digits. */
  def plain(number: UTF8String): UTF8String =
    try {
      val exact = new BigDecimal(number.toString).stripTrailingZeros
      if (exact.precision.max(exact.scale.abs) > MostDigits) null else UTF8String.fromString(exact.toPlainString)
    } catch { case NonFatal(_) => null }
}
