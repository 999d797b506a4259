//! The parts of kube-fpga that answer people.

/// A part of kube-fpga that answers people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The scheduler extender.
    Extender,
    /// The endpoint picker.
    Picker,
}

impl Part {
    /// The name in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Extender => "extender",
            Self::Picker => "picker",
        }
    }

    /// Audience of the tokens that readers show the part.
    #[must_use]
    pub const fn audience(self) -> &'static str {
        match self {
            Self::Extender => fpga_extender_api::READ_AUDIENCE,
            Self::Picker => fpga_picker_api::READ_AUDIENCE,
        }
    }

    /// The usual port.
    #[must_use]
    pub const fn port(self) -> u16 {
        match self {
            Self::Extender => 9461,
            Self::Picker => 9471,
        }
    }
}
