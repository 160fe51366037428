//! xdp
