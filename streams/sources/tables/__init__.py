"""Tables with a row for each job, as CSV or Parquet: what public data sets are."""
