//! The two builds (compiled variants) of a port's XDP program: with and without support for multi-buffer frames. This
//! module also holds the names of the programs in the BPF objects.

/// The two builds of a port's program: with and without support for frames in several buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Build {
    /// Build that accepts multi-buffer frames.
    Frags,
    /// Build without multi-buffer support, for drivers that refuse multi-buffer programs.
    Linear,
}

impl Build {
    pub(crate) const fn program(self) -> &'static str {
        match self {
            Build::Frags => "trivium_port",
            Build::Linear => "trivium_linear",
        }
    }

    /// Returns the name of the program of this build that captures packets.
    pub(crate) const fn dumping(self) -> &'static str {
        match self {
            Build::Frags => "trivium_portdmp",
            Build::Linear => "trivium_lindmp",
        }
    }

    /// Returns the name of the placeholder program ([`crate::Placeholders`]) of this build.
    pub(crate) const fn placeholder(self) -> &'static str {
        match self {
            Build::Frags => "trivium_wait",
            Build::Linear => "trivium_waitlin",
        }
    }

    pub(crate) const fn of(multi_buffer: bool) -> Build {
        if multi_buffer { Build::Frags } else { Build::Linear }
    }
}
