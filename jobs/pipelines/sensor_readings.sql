-- Stateful operations: the average reading of each sensor; and of each area, although the stream is keyed by sensor
-- (the events are brought together by area without anybody writing a shuffle).

CREATE STREAM readings (
  sensor VARCHAR KEY,
  reading DOUBLE,
  area VARCHAR
) WITH (
  KAFKA_TOPIC = 'readings',
  VALUE_FORMAT = 'JSON',
  PARTITIONS = 2
);

CREATE TABLE avg_readings AS
    SELECT sensor,
         AVG(reading) as avg
    FROM readings
    GROUP BY sensor
    EMIT CHANGES;

CREATE TABLE part_avg AS
    SELECT area,
        AVG(reading) AS avg
    FROM readings
    GROUP BY area
    EMIT CHANGES;

-- sensor-1 goes 45, 68.5; sensor-3 goes 67, 59.5, 52; the engine goes 67, 40, 45 on its way.
INSERT INTO readings (sensor, reading, area) VALUES ('sensor-1', 45, 'wheel');
INSERT INTO readings (sensor, reading, area) VALUES ('sensor-4', 95, 'motor');
INSERT INTO readings (sensor, reading, area) VALUES ('sensor-2', 41, 'motor');
INSERT INTO readings (sensor, reading, area) VALUES ('sensor-3', 67, 'engine');
INSERT INTO readings (sensor, reading, area) VALUES ('sensor-3', 52, 'wheel');
INSERT INTO readings (sensor, reading, area) VALUES ('sensor-2', 13, 'engine');
INSERT INTO readings (sensor, reading, area) VALUES ('sensor-4', 55, 'engine');
INSERT INTO readings (sensor, reading, area) VALUES ('sensor-1', 92, 'wheel');
INSERT INTO readings (sensor, reading, area) VALUES ('sensor-2', 90, 'engine');
INSERT INTO readings (sensor, reading, area) VALUES ('sensor-3', 37, 'engine');
