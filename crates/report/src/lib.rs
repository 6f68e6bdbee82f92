//! Result schema, statistics, tables and plots.
