//! Kleene's three-valued logic, for questions about a state of which a part may be unknown.

/// A truth value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ternary {
    /// False.
    #[default]
    No,
    /// Unknown.
    Unknown,
    /// True.
    Yes,
}

impl Ternary {
    /// Conjunction.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        self.min(other)
    }

    /// Disjunction.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        self.max(other)
    }

    /// Conjunction of all `answers`; yes if there are none.
    pub fn all(answers: impl IntoIterator<Item = Self>) -> Self {
        answers.into_iter().fold(Self::Yes, Self::and)
    }

    /// Disjunction of all `answers`; no if there are none.
    pub fn any(answers: impl IntoIterator<Item = Self>) -> Self {
        answers.into_iter().fold(Self::No, Self::or)
    }

    /// Yes or unknown.
    #[must_use]
    pub fn may_be(self) -> bool {
        self != Self::No
    }

    /// Known to be true.
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
    fn an_unknown_operand_decides_only_if_the_other_one_does_not() {
        assert_eq!((Yes.and(Unknown), No.and(Unknown)), (Unknown, No));
        assert_eq!((Yes.or(Unknown), No.or(Unknown)), (Yes, Unknown));
        assert_eq!((Ternary::all([]), Ternary::any([])), (Yes, No));
        assert_eq!((Ternary::all([Yes, Unknown, No]), Ternary::any([No, Unknown, Yes])), (No, Yes));
    }
}
