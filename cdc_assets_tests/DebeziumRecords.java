import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.Header;
import io.debezium.engine.format.Json;
import java.io.FileReader;
import java.io.PrintStream;
import java.util.Base64;
import java.util.Properties;

/** Runs Debezium with the properties of a file, and prints a line of JSON for each record, until its standard input ends. */
class DebeziumRecords {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        try (FileReader file = new FileReader(args[0])) {
            settings.load(file);
        }
        PrintStream out = System.out;
        System.setOut(System.err);
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
                .using(settings)
                .notifying(event -> {
                    out.println(line(event));
                    out.flush();
                })
                .using((success, message, error) -> System.err.println("ended: " + message + " " + error))
                .build();
        Thread running = new Thread(engine);
        running.start();
        while (System.in.read() >= 0) {
        }
        engine.close();
        running.join(30_000);
    }

    private static String line(ChangeEvent<String, String> event) {
        StringBuilder headers = new StringBuilder();
        if (event.headers() != null) {
            for (Header<?> header : event.headers()) {
                String value = header.getValue() == null ? null : header.getValue().toString();
                headers.append(headers.length() == 0 ? "" : ",")
                        .append("{\"key\":\"").append(header.getKey()).append("\",\"value\":").append(packed(value)).append("}");
            }
        }
        return "{\"topic\":\"" + event.destination() + "\",\"timestamp\":" + System.currentTimeMillis() + ",\"key\":"
                + packed(event.key()) + ",\"value\":" + packed(event.value()) + ",\"headers\":[" + headers + "]}";
    }

    private static String packed(String text) {
        return text == null ? "null" : "\"" + Base64.getEncoder().encodeToString(text.getBytes(java.nio.charset.StandardCharsets.UTF_8)) + "\"";
    }
}
