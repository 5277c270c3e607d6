package cdc_assets

import java.io.{ByteArrayInputStream, ByteArrayOutputStream}
import java.nio.ByteBuffer
import java.util.Arrays

import scala.util.Using
import scala.util.control.NonFatal

import org.apache.commons.compress.compressors.lz4.FramedLZ4CompressorInputStream
import org.xerial.snappy.Snappy

final class Unpacked

object Unpacked {
  private val Lz4 = Array[Byte](0x04, 0x22, 0x4d, 0x18)
  // No compressed value is larger unpacked: Kafka's own limits are far below.
  private val Largest = 1 << 30

  /** A value out of its compression, an LZ4 frame or a Snappy block; what is neither, or broken, stays as it is.
    *
    * @param parts whether the value is a row of parts, each behind its length and compressed by itself
    */
  def unpacked(value: Array[Byte], parts: Boolean): Array[Byte] = if (parts) each(value) else one(value)

  private def one(value: Array[Byte]): Array[Byte] =
    try {
      if (Arrays.equals(Arrays.copyOf(value, Lz4.length), Lz4)) {
        // Whatever comes after the frame must be a frame, too.
        val out = Using.resource(new FramedLZ4CompressorInputStream(new ByteArrayInputStream(value), true))(_.readNBytes(Largest))
        if (out.length < Largest) out else value
      } else {
        val size = Snappy.uncompressedLength(value)
        // Looked through first: in what is no Snappy block any number may stand for the size.
        if (size > 0 && size <= Largest && Snappy.isValidCompressedBuffer(value)) Snappy.uncompress(value) else value
      }
    } catch { case NonFatal(_) => value }

  private def each(value: Array[Byte]): Array[Byte] = {
    val (in, out) = (ByteBuffer.wrap(value), new ByteArrayOutputStream)
    while (in.remaining >= java.lang.Long.BYTES) {
      val length = in.getLong
      if (length < 0 || length > in.remaining) return value
      val part = new Array[Byte](length.toInt)
      in.get(part)
      val opened = one(part)
      out.writeBytes(ByteBuffer.allocate(java.lang.Long.BYTES).putLong(opened.length.toLong).array)
      out.writeBytes(opened)
    }
    if (in.hasRemaining) value else out.toByteArray
  }
}
