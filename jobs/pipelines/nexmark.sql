-- Nexmark: an auction house. Its events come from benchmarks/nexmark; its questions q0 to q22 are views here.
--
-- What differs from the suite's own texts: a bid has an id; q6 is the last 10 auctions of a seller that have a bid;
-- q7 counts a bid to one window; q10 is a log with its date parts as columns; q12 goes by the time of events, since a
-- view has the same rows whenever it is computed; q13's side input is a table.

CREATE STREAM person (
  id BIGINT KEY,
  name VARCHAR,
  email_address VARCHAR,
  credit_card VARCHAR,
  city VARCHAR,
  state VARCHAR,
  date_time TIMESTAMP,
  extra VARCHAR
) WITH (KAFKA_TOPIC = 'nexmark_person', VALUE_FORMAT = 'JSON', TIMESTAMP = 'date_time');

CREATE STREAM auction (
  id BIGINT KEY,
  item_name VARCHAR,
  description VARCHAR,
  initial_bid BIGINT,
  reserve BIGINT,
  date_time TIMESTAMP,
  expires TIMESTAMP,
  seller BIGINT,
  category BIGINT,
  extra VARCHAR
) WITH (KAFKA_TOPIC = 'nexmark_auction', VALUE_FORMAT = 'JSON', TIMESTAMP = 'date_time');

CREATE STREAM bid (
  id BIGINT KEY,
  auction BIGINT,
  bidder BIGINT,
  price BIGINT,
  channel VARCHAR,
  url VARCHAR,
  date_time TIMESTAMP,
  extra VARCHAR
) WITH (KAFKA_TOPIC = 'nexmark_bid', VALUE_FORMAT = 'JSON', TIMESTAMP = 'date_time');

CREATE TABLE side_input (
  key BIGINT PRIMARY KEY,
  value VARCHAR
) WITH (KAFKA_TOPIC = 'nexmark_side_input', VALUE_FORMAT = 'JSON');

-- q0: nothing but the way through.
CREATE MATERIALIZED VIEW q0 AS
  SELECT id, auction, bidder, price, date_time, extra
  FROM bid;

-- q1: prices in another currency.
CREATE MATERIALIZED VIEW q1 AS
  SELECT id, auction, bidder, 0.908 * price AS price, date_time, extra
  FROM bid;

-- q2: bids on a few auctions.
CREATE MATERIALIZED VIEW q2 AS
  SELECT id, auction, price
  FROM bid
  WHERE auction % 123 = 0;

-- q3: who sells in category 10, in three states.
CREATE MATERIALIZED VIEW q3 AS
  SELECT p.name, p.city, p.state, a.id
  FROM auction a
  JOIN person p ON a.seller = p.id
  WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA');

-- q4: the average price at which auctions of a category are won.
CREATE MATERIALIZED VIEW q4 AS
  SELECT category, AVG(final) AS average
  FROM (
    SELECT a.id, a.category, MAX(b.price) AS final
    FROM auction a
    JOIN bid b ON a.id = b.auction
    WHERE b.date_time BETWEEN a.date_time AND a.expires
    GROUP BY a.id, a.category
  ) won
  GROUP BY category;

-- q5: the auctions with the most bids in the last 10 seconds, every 2 seconds.
CREATE MATERIALIZED VIEW q5 AS
  WITH counts AS (
    SELECT auction, WINDOWSTART AS starttime, COUNT(*) AS num
    FROM bid
    WINDOW HOPPING (SIZE 10 SECONDS, ADVANCE BY 2 SECONDS)
    GROUP BY auction
  )
  SELECT c.starttime, c.auction, c.num
  FROM counts c
  JOIN (SELECT starttime, MAX(num) AS most FROM counts GROUP BY starttime) m ON c.starttime = m.starttime
  WHERE c.num >= m.most;

-- q6: the average price of the last 10 auctions that a seller has sold, after each of them.
CREATE MATERIALIZED VIEW q6 AS
  SELECT seller, id, AVG(price) OVER (
      PARTITION BY seller ORDER BY date_time, id ROWS BETWEEN 9 PRECEDING AND CURRENT ROW
    ) AS average
  FROM (
    SELECT a.id, a.seller, b.price, b.date_time,
      ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time, b.id) AS place
    FROM auction a
    JOIN bid b ON a.id = b.auction
    WHERE b.date_time BETWEEN a.date_time AND a.expires
  ) ranked
  WHERE place <= 1;

-- q7: the highest bids of each 10 seconds.
CREATE MATERIALIZED VIEW q7 AS
  SELECT b.id, b.auction, b.bidder, b.price, b.date_time, b.extra
  FROM bid b
  JOIN (
    SELECT period, MAX(price) AS highest
    FROM (SELECT UNIX_TIMESTAMP(date_time) / 10000 AS period, price FROM bid) timed
    GROUP BY period
  ) top ON b.price = top.highest AND UNIX_TIMESTAMP(b.date_time) / 10000 = top.period;

-- q8: who registered and opened an auction within the same 10 seconds.
CREATE MATERIALIZED VIEW q8 AS
  SELECT p.id, p.name, p.starttime
  FROM (
    SELECT id, name, WINDOWSTART AS starttime, COUNT(*) AS registrations
    FROM person
    WINDOW TUMBLING (SIZE 10 SECONDS)
    GROUP BY id, name
  ) p
  JOIN (
    SELECT seller, WINDOWSTART AS starttime, COUNT(*) AS opened
    FROM auction
    WINDOW TUMBLING (SIZE 10 SECONDS)
    GROUP BY seller
  ) a ON p.id = a.seller AND p.starttime = a.starttime;

-- q9: the bid that wins each auction.
CREATE MATERIALIZED VIEW q9 AS
  SELECT id, item_name, initial_bid, reserve, expires, seller, category, bid_id, bidder, price, bid_time
  FROM (
    SELECT a.id, a.item_name, a.initial_bid, a.reserve, a.expires, a.seller, a.category,
      b.id AS bid_id, b.bidder, b.price, b.date_time AS bid_time,
      ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time, b.id) AS place
    FROM auction a
    JOIN bid b ON a.id = b.auction
    WHERE b.date_time BETWEEN a.date_time AND a.expires
  ) ranked
  WHERE place <= 1;

-- q10: a log of the bids, by day and minute.
CREATE MATERIALIZED VIEW q10 AS
  SELECT id, auction, bidder, price, date_time, extra,
    FORMAT_TIMESTAMP(date_time, 'yyyy-MM-dd') AS day, FORMAT_TIMESTAMP(date_time, 'HH:mm') AS minute
  FROM bid;

-- q11: how many bids a user makes in each session.
CREATE MATERIALIZED VIEW q11 AS
  SELECT bidder, WINDOWSTART AS starttime, WINDOWEND AS endtime, COUNT(*) AS bids
  FROM bid
  WINDOW SESSION (10 SECONDS)
  GROUP BY bidder;

-- q12: how many bids a user makes in each 10 seconds.
CREATE MATERIALIZED VIEW q12 AS
  SELECT bidder, WINDOWSTART AS starttime, WINDOWEND AS endtime, COUNT(*) AS bids
  FROM bid
  WINDOW TUMBLING (SIZE 10 SECONDS)
  GROUP BY bidder;

-- q13: bids with what the side input says of them.
CREATE MATERIALIZED VIEW q13 AS
  SELECT b.id, b.auction, b.bidder, b.price, b.date_time, s.value
  FROM bid b
  JOIN side_input s ON b.auction % 10000 = s.key;

-- q14: calculations, and a function over text.
CREATE MATERIALIZED VIEW q14 AS
  SELECT id, auction, bidder, 0.908 * price AS price,
    CASE
      WHEN hour BETWEEN 8 AND 18 THEN 'dayTime'
      WHEN hour <= 6 OR hour >= 20 THEN 'nightTime'
      ELSE 'otherTime'
    END AS bid_time_type,
    date_time, extra, LEN(extra) - LEN(REPLACE(extra, 'c', '')) AS c_counts
  FROM (SELECT *, CAST(FORMAT_TIMESTAMP(date_time, 'HH') AS INT) AS hour FROM bid) timed
  WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;

-- q15: how many users bid in three ranges of prices, each day.
CREATE MATERIALIZED VIEW q15 AS
  SELECT FORMAT_TIMESTAMP(date_time, 'yyyy-MM-dd') AS day,
    COUNT(*) AS total_bids,
    COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
    COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
    COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
    COUNT(DISTINCT bidder) AS total_bidders,
    COUNT(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
    COUNT(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders,
    COUNT(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
    COUNT(DISTINCT auction) AS total_auctions,
    COUNT(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions,
    COUNT(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions,
    COUNT(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions
  FROM bid
  GROUP BY FORMAT_TIMESTAMP(date_time, 'yyyy-MM-dd');

-- q16: the same for each channel, with the last minute of the day in which something was bid.
CREATE MATERIALIZED VIEW q16 AS
  SELECT channel,
    FORMAT_TIMESTAMP(date_time, 'yyyy-MM-dd') AS day,
    MAX(FORMAT_TIMESTAMP(date_time, 'HH:mm')) AS minute,
    COUNT(*) AS total_bids,
    COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
    COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
    COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
    COUNT(DISTINCT bidder) AS total_bidders,
    COUNT(DISTINCT bidder) FILTER (WHERE price < 10000) AS rank1_bidders,
    COUNT(DISTINCT bidder) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bidders,
    COUNT(DISTINCT bidder) FILTER (WHERE price >= 1000000) AS rank3_bidders,
    COUNT(DISTINCT auction) AS total_auctions,
    COUNT(DISTINCT auction) FILTER (WHERE price < 10000) AS rank1_auctions,
    COUNT(DISTINCT auction) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_auctions,
    COUNT(DISTINCT auction) FILTER (WHERE price >= 1000000) AS rank3_auctions
  FROM bid
  GROUP BY channel, FORMAT_TIMESTAMP(date_time, 'yyyy-MM-dd');

-- q17: prices of each auction, each day.
CREATE MATERIALIZED VIEW q17 AS
  SELECT auction,
    FORMAT_TIMESTAMP(date_time, 'yyyy-MM-dd') AS day,
    COUNT(*) AS total_bids,
    COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
    COUNT(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
    COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
    MIN(price) AS min_price,
    MAX(price) AS max_price,
    AVG(price) AS avg_price,
    SUM(price) AS sum_price
  FROM bid
  GROUP BY auction, FORMAT_TIMESTAMP(date_time, 'yyyy-MM-dd');

-- q18: the last bid of each user on each auction.
CREATE MATERIALIZED VIEW q18 AS
  SELECT id, auction, bidder, price, channel, url, date_time, extra
  FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC, id DESC) AS place
    FROM bid
  ) ranked
  WHERE place <= 1;

-- q19: the ten highest bids on each auction.
CREATE MATERIALIZED VIEW q19 AS
  SELECT id, auction, bidder, price, channel, url, date_time, extra, place
  FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, id) AS place
    FROM bid
  ) ranked
  WHERE place <= 10;

-- q20: bids on auctions of category 10, with their auctions.
CREATE MATERIALIZED VIEW q20 AS
  SELECT b.id, b.auction, b.bidder, b.price, b.channel, b.url, b.date_time AS bid_time, b.extra AS bid_extra,
    a.item_name, a.description, a.initial_bid, a.reserve, a.date_time AS auction_time, a.expires, a.seller, a.category
  FROM bid b
  JOIN auction a ON b.auction = a.id
  WHERE a.category = 10;

-- q21: the id of a bid's channel, known or taken from its URL.
CREATE MATERIALIZED VIEW q21 AS
  SELECT id, auction, bidder, price, channel,
    CASE
      WHEN LCASE(channel) = 'apple' THEN '0'
      WHEN LCASE(channel) = 'google' THEN '1'
      WHEN LCASE(channel) = 'facebook' THEN '2'
      WHEN LCASE(channel) = 'baidu' THEN '3'
      ELSE REGEXP_EXTRACT('(&|^)channel_id=([^&]*)', url, 2)
    END AS channel_id
  FROM bid
  WHERE REGEXP_EXTRACT('(&|^)channel_id=([^&]*)', url, 2) IS NOT NULL
    OR LCASE(channel) IN ('apple', 'google', 'facebook', 'baidu');

-- q22: the parts of a bid's URL.
CREATE MATERIALIZED VIEW q22 AS
  SELECT id, auction, bidder, price, channel,
    SPLIT(url, '/')[4] AS dir1, SPLIT(url, '/')[5] AS dir2, SPLIT(url, '/')[6] AS dir3
  FROM bid;
