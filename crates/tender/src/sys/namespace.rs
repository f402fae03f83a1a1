//! Anonymous network namespaces.
