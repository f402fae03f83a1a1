//! Network interfaces over rtnetlink.
