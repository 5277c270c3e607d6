import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.apicurio.registry.utils.converter.AvroConverter;
import java.io.BufferedReader;
import java.io.FileReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.json.JsonConverter;

/**
 * Reads lines of recorded records of Debezium in JSON with schemas, and prints them with keys and values in Avro: what
 * Connect makes of the same records with Apicurio's converter and the settings of a file.
 */
class RegistryRecords {
    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        try (FileReader file = new FileReader(args[0])) {
            Properties read = new Properties();
            read.load(file);
            read.forEach((name, value) -> settings.put(name.toString(), value));
        }
        PrintStream out = System.out;
        System.setOut(System.err);
        Side key = new Side(settings, true), value = new Side(settings, false);
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ObjectNode record = (ObjectNode) mapper.readTree(line);
            String topic = record.get("topic").asText();
            Headers headers = new RecordHeaders();
            record.put("key", key.inAvro(topic, headers, record.get("key")));
            record.put("value", value.inAvro(topic, headers, record.get("value")));
            ArrayNode listed = record.withArray("headers");
            for (Header header : headers) {
                listed.addObject().put("key", header.key()).put("value", header.value());
            }
            out.println(mapper.writeValueAsString(record));
        }
        out.flush();
    }

    /** The converters of keys, or of values. */
    private static class Side {
        private final JsonConverter json = new JsonConverter();
        private final AvroConverter<?> avro = new AvroConverter<>();

        Side(Map<String, Object> settings, boolean isKey) {
            json.configure(Map.of("schemas.enable", "true"), isKey);
            avro.configure(settings, isKey);
        }

        byte[] inAvro(String topic, Headers headers, JsonNode bytes) throws IOException {
            if (bytes == null || bytes.isNull()) {
                return null;
            }
            SchemaAndValue read = json.toConnectData(topic, bytes.binaryValue());
            return avro.fromConnectData(topic, headers, read.schema(), read.value());
        }
    }
}
