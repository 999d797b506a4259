//! Answers to questions about something of which a part may be unknown (Kleene's three-valued logic).

/// Whether something is so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ternary {
    /// It is not.
    #[default]
    No,
    /// What would tell is not known.
    Unknown,
    /// It is.
    Yes,
}

impl Ternary {
    /// Whether both are so.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        self.min(other)
    }

    /// Whether one of both is so.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        self.max(other)
    }

    /// Whether all of `answers` are yes; yes if there are none.
    pub fn all(answers: impl IntoIterator<Item = Self>) -> Self {
        answers.into_iter().fold(Self::Yes, Self::and)
    }

    /// Whether one of `answers` is yes; no if there are none.
    pub fn any(answers: impl IntoIterator<Item = Self>) -> Self {
        answers.into_iter().fold(Self::No, Self::or)
    }

    /// Yes or unknown.
    #[must_use]
    pub fn may_be(self) -> bool {
        self != Self::No
    }

    /// Yes, known for certain.
    #[must_use]
    pub fn is_yes(self) -> bool {
        self == Self::Yes
    }
}

impl From<bool> for Ternary {
    fn from(is: bool) -> Self {
        if is { Self::Yes } else { Self::No }
    }
}

#[cfg(test)]
mod tests {
    use super::Ternary::{self, No, Unknown, Yes};

    #[test]
    fn what_is_unknown_decides_nothing_unless_the_rest_leaves_no_choice() {
        assert_eq!((Yes.and(Unknown), No.and(Unknown)), (Unknown, No));
        assert_eq!((Yes.or(Unknown), No.or(Unknown)), (Yes, Unknown));
        assert_eq!((Ternary::all([]), Ternary::any([])), (Yes, No));
        assert_eq!((Ternary::all([Yes, Unknown, No]), Ternary::any([No, Unknown, Yes])), (No, Yes));
    }
}
