// pgJDBC: DatabaseMetaData, statements past the threshold of prepared ones, fetch sizes, types, COPY.
//
//     java -cp postgresql.jar Jdbc.java HOST:PORT/lake[?option=value]
import java.io.StringWriter;
import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Timestamp;
import java.time.LocalDate;
import java.time.LocalTime;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import org.postgresql.copy.CopyManager;
import org.postgresql.core.BaseConnection;

public class Jdbc {
    static Connection session;

    /** Says whether an answer is the expected one; null: whether it comes without an error. */
    static void check(String name, Object expected, Callable<Object> ask) {
        try {
            Object found = ask.call();
            boolean same = expected == null || expected.toString().equals(String.valueOf(found));
            System.out.println(same ? "ok " + name : "FAIL " + name + ": " + found);
        } catch (Exception error) {
            System.out.println("FAIL " + name + ": " + error.toString().replace('\n', ' '));
        }
    }

    static List<String> column(ResultSet rows, String name) throws SQLException {
        List<String> found = new ArrayList<>();
        while (rows.next()) {
            found.add(rows.getString(name));
        }
        return found;
    }

    static int count(ResultSet rows) throws SQLException {
        int found = 0;
        while (rows.next()) {
            found++;
        }
        return found;
    }

    static ResultSet query(String sql) throws SQLException {
        return session.createStatement().executeQuery(sql);
    }

    static void metadata() throws SQLException {
        var about = session.getMetaData();
        String[] kinds = {"TABLE", "VIEW", "MATERIALIZED VIEW"};
        check("getTables", "[Odd Name, by_id, by_town, everything, visits]", () -> {
            List<String> found = column(about.getTables(null, "public", "%", kinds), "TABLE_NAME");
            found.sort(null);
            return found;
        });
        check("getColumns", "[int8, bool, int4, float8, numeric, text, bytea, date, time, timestamptz, _int8, _text, json, json]",
            () -> column(about.getColumns(null, "public", "everything", "%"), "TYPE_NAME"));
        check("getPrimaryKeys", "[town]", () -> column(about.getPrimaryKeys(null, "public", "by_town"), "COLUMN_NAME"));
        check("getIndexInfo", "[town]", () -> column(about.getIndexInfo(null, "public", "by_town", true, false), "COLUMN_NAME"));
        check("getImportedKeys", 0, () -> count(about.getImportedKeys(null, "public", "by_town")));
        check("getExportedKeys", 0, () -> count(about.getExportedKeys(null, "public", "by_town")));
        check("getBestRowIdentifier", "[town]", () -> column(about.getBestRowIdentifier(null, "public", "by_town", 0, true), "COLUMN_NAME"));
        check("getSchemas", "[public]", () -> column(about.getSchemas(null, "pub%"), "TABLE_SCHEM"));
        check("getCatalogs", "[lake]", () -> column(about.getCatalogs(), "TABLE_CAT"));
        check("getTypeInfo", null, () -> count(about.getTypeInfo()));
        check("getTableTypes", null, () -> count(about.getTableTypes()));
        check("getProcedures", null, () -> count(about.getProcedures(null, null, "%")));
        check("getFunctions", null, () -> count(about.getFunctions(null, null, "%")));
        check("getFunctionColumns", null, () -> count(about.getFunctionColumns(null, null, "%", "%")));
        check("getUDTs", 0, () -> count(about.getUDTs(null, null, "%", null)));
        check("getTablePrivileges", "[SELECT]", () -> column(about.getTablePrivileges(null, null, "by_town"), "PRIVILEGE"));
        check("getColumnPrivileges", null, () -> count(about.getColumnPrivileges(null, "public", "by_town", "%")));
        check("getSQLKeywords", null, about::getSQLKeywords);
        check("getMaxIndexLength", null, about::getMaxColumnsInIndex);
    }

    static void prepared() {
        check("named statements, binary", "1|-7|1.5|12.34|it's ü|[0, -1]|2024-05-01|{1,NULL,3}|{\"hot\": 1}", () -> {
            String found = "";
            try (PreparedStatement asked = session.prepareStatement("SELECT * FROM everything WHERE id = ?")) {
                for (int turn = 0; turn < 8; turn++) {
                    asked.setLong(1, 1);
                    ResultSet row = asked.executeQuery();
                    row.next();
                    found = String.join("|", row.getString("id"), row.getString("small"), row.getString("ratio"),
                        row.getString("price"), row.getString("name"), Arrays.toString(row.getBytes("raw")),
                        row.getString("day"), row.getString("numbers").replace("\"", ""), row.getString("tags"));
                }
            }
            return found;
        });
        check("parameters of every type", "[1]", () -> {
            String sql = "SELECT id FROM everything WHERE small = ? AND ratio = ? AND price = ? AND name = ? AND flag = ?"
                + " AND day = ? AND at > ? AND raw = ? AND opens = ?";
            List<String> found = List.of();
            try (PreparedStatement asked = session.prepareStatement(sql)) {
                for (int turn = 0; turn < 8; turn++) {
                    asked.setInt(1, -7);
                    asked.setDouble(2, 1.5);
                    asked.setBigDecimal(3, new BigDecimal("12.34"));
                    asked.setString(4, "it's ü");
                    asked.setBoolean(5, true);
                    asked.setDate(6, java.sql.Date.valueOf("2024-05-01"));
                    asked.setTimestamp(7, Timestamp.valueOf("2024-01-01 00:00:00"));
                    asked.setBytes(8, new byte[] {0, -1});
                    asked.setObject(9, LocalTime.parse("09:35:00.250"));
                    found = column(asked.executeQuery(), "id");
                }
            }
            return found;
        });
        check("setObject", "[1]", () -> {
            try (PreparedStatement asked = session.prepareStatement("SELECT id FROM everything WHERE at > ? AND day = ?")) {
                asked.setObject(1, OffsetDateTime.parse("2024-01-01T00:00:00Z"));
                asked.setObject(2, LocalDate.parse("2024-05-01"));
                return column(asked.executeQuery(), "id");
            }
        });
        check("an array", 2, () -> {
            try (PreparedStatement asked = session.prepareStatement("SELECT town FROM by_town WHERE town = ANY(?)")) {
                asked.setArray(1, session.createArrayOf("text", new Object[] {"Rome", "Oslo"}));
                return count(asked.executeQuery());
            }
        });
        check("types of parameters", "int8 text text", () -> {
            try (PreparedStatement asked = session.prepareStatement("SELECT town FROM by_town WHERE visits > ? AND town = ?")) {
                var given = asked.getParameterMetaData();
                return given.getParameterTypeName(1) + " " + given.getParameterTypeName(2) + " "
                    + asked.getMetaData().getColumnTypeName(1);
            }
        });
    }

    static void results() {
        check("a timestamp", "2024-05-01T12:00:00.123456Z", () -> {
            ResultSet row = query("SELECT at FROM everything WHERE id = 1");
            row.next();
            return row.getTimestamp(1).toInstant();
        });
        check("arrays", "[1, null, 3][a, b,c, d\"]", () -> {
            ResultSet row = query("SELECT numbers, words FROM everything WHERE id = 1");
            row.next();
            return Arrays.toString((Object[]) row.getArray(1).getArray()) + Arrays.toString((Object[]) row.getArray(2).getArray());
        });
        check("scrolled", 1000, () -> {
            var statement = session.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_READ_ONLY);
            ResultSet rows = statement.executeQuery("SELECT id FROM by_id");
            rows.last();
            return rows.getRow();
        });
        check("fetch size", 1000, () -> {
            session.setAutoCommit(false);
            try (var statement = session.createStatement()) {
                statement.setFetchSize(100);
                return count(statement.executeQuery("SELECT id FROM by_id"));
            } finally {
                session.rollback();
                session.setAutoCommit(true);
            }
        });
        check("an error, and back to a savepoint", "42703 1000", () -> {
            session.setAutoCommit(false);
            String state = "";
            var place = session.setSavepoint();
            try {
                query("SELECT nope FROM by_id");
            } catch (SQLException error) {
                state = error.getSQLState();
                session.rollback(place);
            }
            String found = state + " " + count(query("SELECT id FROM by_id"));
            session.rollback();
            session.setAutoCommit(true);
            return found;
        });
        check("a write is refused", "25006", () -> {
            try {
                return session.createStatement().executeUpdate("INSERT INTO visits VALUES (1, 'a', 2)");
            } catch (SQLException error) {
                return error.getSQLState();
            }
        });
        check("a timeout", 1, () -> {
            try (var statement = session.createStatement()) {
                statement.setQueryTimeout(5);
                return count(statement.executeQuery("SELECT id FROM by_id LIMIT 1"));
            }
        });
        check("escapes", "[1]", () -> column(query("SELECT id FROM everything WHERE at > {ts '2024-01-01 00:00:00'} AND day = {d '2024-05-01'}"), "id"));
        check("copy", true, () -> {
            StringWriter target = new StringWriter();
            new CopyManager(session.unwrap(BaseConnection.class)).copyOut("COPY (SELECT town FROM by_town) TO STDOUT", target);
            return target.toString().contains("Rome\n");
        });
    }

    public static void main(String[] arguments) throws Exception {
        session = DriverManager.getConnection("jdbc:postgresql://" + arguments[0], "me", "");
        System.out.println("version " + session.getMetaData().getDriverVersion());
        metadata();
        prepared();
        results();
    }
}
