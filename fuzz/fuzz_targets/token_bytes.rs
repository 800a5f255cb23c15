#![no_main]

feedline_fuzz::target!(token_bytes);
