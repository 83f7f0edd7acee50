"""The layers, one file for each question: plain functions from tables to tables, in the order in which they are used.

Bronze is in `read`; silver in `silver` (rows, and who was to hear whom), `skew` and `fit` (clocks), `who` (authors and
pairs); gold in `messages`, `pairs`, `batches` (Table 8), `facts` (outages, joins, sizes, repairs), `levels` (members,
service), with latencies as `speed` counts them. `schema` says what tables look like, `quality` gathers what was wrong,
`run` puts all of it in a row into a `store`.
"""
