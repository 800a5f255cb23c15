#![no_main]

feedline_fuzz::target!(parquet_bytes);
