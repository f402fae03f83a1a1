//! Pure packet functions: rules and their matcher.
