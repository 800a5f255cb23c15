#![no_main]

feedline_fuzz::target!(zarr_bytes);
