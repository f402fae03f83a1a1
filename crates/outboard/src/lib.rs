//! The command line: run, build, inspect, demo.
