//! Pure scheduling engine: decides from an immutable snapshot.
