package cdc_assets

import java.io.{ByteArrayInputStream, ByteArrayOutputStream}
import java.nio.ByteBuffer
import java.util.Arrays

import scala.util.Using
import scala.util.control.NonFatal

import org.apache.commons.compress.compressors.lz4.FramedLZ4CompressorInputStream
import org.xerial.snappy.Snappy

final class Decompression

object Decompression {
  private val Lz4Magic = Array[Byte](0x04, 0x22, 0x4d, 0x18)
  // An upper limit for a decompressed value: Kafka's own limits are far lower.
  private val MaxBytes = 1 << 30

  /** Return a value decompressed, if it is an LZ4 frame or a Snappy block; else, and if it is damaged, the value itself.
    *
    * @param parts whether the value is a sequence of parts, each with its length in front and compressed on its own
    */
  def decompress(value: Array[Byte], parts: Boolean): Array[Byte] = if (parts) decompressParts(value) else decompressOne(value)

  private def decompressOne(value: Array[Byte]): Array[Byte] =
    try {
      if (Arrays.equals(Arrays.copyOf(value, Lz4Magic.length), Lz4Magic)) {
        // With `true`, bytes after the frame must be another frame, else reading fails.
        val bytes = Using.resource(new FramedLZ4CompressorInputStream(new ByteArrayInputStream(value), true))(_.readNBytes(MaxBytes))
        if (bytes.length < MaxBytes) bytes else value
      } else {
        val size = Snappy.uncompressedLength(value)
        // Check the block first: any bytes can be read as a size.
        if (size > 0 && size <= MaxBytes && Snappy.isValidCompressedBuffer(value)) Snappy.uncompress(value) else value
      }
    } catch { case NonFatal(_) => value }

  private def decompressParts(value: Array[Byte]): Array[Byte] = {
    val (in, out) = (ByteBuffer.wrap(value), new ByteArrayOutputStream)
    while (in.remaining >= java.lang.Long.BYTES) {
      val length = in.getLong
      if (length < 0 || length > in.remaining) return value
      val part = new Array[Byte](length.toInt)
      in.get(part)
      val decompressed = decompressOne(part)
      out.writeBytes(ByteBuffer.allocate(java.lang.Long.BYTES).putLong(decompressed.length.toLong).array)
      out.writeBytes(decompressed)
    }
    if (in.hasRemaining) value else out.toByteArray
  }
}
