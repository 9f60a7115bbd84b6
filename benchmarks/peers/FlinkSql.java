// Runs SQL files on a Flink cluster inside this JVM, one after the other, and prints each one's seconds by the clock and
// of the processor.
//
//     java ... FlinkSql KEY=VALUE ... file.sql ...
//
// KEY=VALUE is Flink's configuration. A file's statements end with ';'; an INSERT is awaited.

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;

public final class FlinkSql {
    private static final OperatingSystemMXBean MACHINE =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        for (String argument : arguments) {
            int equals = argument.indexOf('=');
            if (equals > 0) {
                configuration.setString(argument.substring(0, equals), argument.substring(equals + 1));
            }
        }
        for (String argument : arguments) {
            if (argument.endsWith(".sql") && argument.indexOf('=') < 0) {
                long began = System.nanoTime();
                long worked = MACHINE.getProcessCpuTime();
                run(configuration, Files.readString(Path.of(argument)));
                double seconds = (System.nanoTime() - began) / 1e9;
                double processor = (MACHINE.getProcessCpuTime() - worked) / 1e9;
                System.out.printf(Locale.ROOT, "seconds %.3f processor %.3f%n", seconds, processor);
            }
        }
    }

    private static void run(Configuration configuration, String statements) throws Exception {
        EnvironmentSettings settings =
            EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(configuration).build();
        TableEnvironment tables = TableEnvironment.create(settings);
        for (String statement : statements.split(";")) {
            if (!statement.isBlank()) {
                TableResult result = tables.executeSql(statement);
                if (statement.strip().startsWith("INSERT")) {
                    result.await();
                }
            }
        }
    }
}
