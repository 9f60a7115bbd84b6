-- The longest visit of each category of products, also when a visit is taken back.

CREATE OR REPLACE TABLE info (
  product VARCHAR PRIMARY KEY,
  category VARCHAR
) WITH (
  KAFKA_TOPIC = 'info'
);

CREATE OR REPLACE TABLE visit (
  product VARCHAR PRIMARY KEY,
  visitor VARCHAR PRIMARY KEY,
  length INT
) WITH (
  KAFKA_TOPIC = 'visit',
  FORMAT = 'JSON'
);

CREATE MATERIALIZED VIEW longest AS
  SELECT
    category,
    MAX(length) AS max_length
  FROM info
  JOIN visit ON info.product = visit.product
  GROUP BY category;

INSERT INTO info VALUES ( 'leek', 'Vegetable' ), ( 'beet', 'Vegetable' ), ( 'plum', 'Fruit' );
INSERT INTO visit VALUES ( 'leek', 'ann', 60 ), ( 'beet', 'bob', 50 ), ( 'plum', 'ann', 20 );

-- The visit of 60 minutes was a mistake: the view retracts (Vegetable, 60) and inserts (Vegetable, 50).
DELETE FROM visit WHERE product = 'leek' AND visitor = 'ann';
