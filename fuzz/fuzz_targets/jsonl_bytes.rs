#![no_main]

feedline_fuzz::target!(jsonl_bytes);
