"""The layers of the pipeline: functions from tables to tables.

Bronze: `read` (with `scan`). Silver: `silver` (valid rows, expected recipients), `clock_skew` and `clock_fit` (clock
offsets), `authors` (authors and pairs). Gold: `messages`, `pairs`, `bursts` (Table 8), `aggregates` (outages, joins,
sizes, gaps), `service_levels` (members, overall), with `latency` histograms. `schema` defines the input, `quality`
reports invalid input, `run` builds everything into a `store`.
"""
