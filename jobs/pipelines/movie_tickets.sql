-- State table: how many tickets each film has sold.

CREATE STREAM movie_ticket_sales (
  title VARCHAR KEY,
  sale_ts VARCHAR,
  ticket_total_value INT
) WITH (
  KAFKA_TOPIC = 'movie_ticket_sales',
  VALUE_FORMAT = 'JSON',
  PARTITIONS = 2
);

CREATE TABLE movie_tickets_sold AS
    SELECT title,
           COUNT(ticket_total_value) AS tickets_sold
    FROM movie_ticket_sales
    GROUP BY title
    EMIT CHANGES;

INSERT INTO movie_ticket_sales VALUES ('Aliens', '2019-07-18T10:00:00Z', 10);
INSERT INTO movie_ticket_sales VALUES ('Die Hard', '2019-07-18T10:00:00Z', 12);
INSERT INTO movie_ticket_sales VALUES ('Die Hard', '2019-07-18T10:01:00Z', 12);
INSERT INTO movie_ticket_sales VALUES ('The Godfather', '2019-07-18T10:01:31Z', 12);
INSERT INTO movie_ticket_sales VALUES ('Die Hard', '2019-07-18T10:01:36Z', 24);
INSERT INTO movie_ticket_sales VALUES ('The Godfather', '2019-07-18T10:02:00Z', 18);
INSERT INTO movie_ticket_sales VALUES ('The Big Lebowski', '2019-07-18T11:03:21Z', 12);
INSERT INTO movie_ticket_sales VALUES ('The Big Lebowski', '2019-07-18T11:03:50Z', 12);
INSERT INTO movie_ticket_sales VALUES ('The Godfather', '2019-07-18T11:40:00Z', 36);
INSERT INTO movie_ticket_sales VALUES ('The Godfather', '2019-07-18T11:40:09Z', 18);
