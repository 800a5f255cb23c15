#![no_main]

feedline_fuzz::target!(order_params);
