//! Names of nodes as places in one text: thousands of names take one allocation.

use std::borrow::Cow;
use std::ops::Range;

/// Names of nodes.
#[derive(Debug)]
pub struct NodeNames<'a> {
    /// The request, in which the names lie as they are, without escapes; or a text of names alone.
    text: Cow<'a, str>,
    places: Vec<Range<u32>>,
}

impl<'a> NodeNames<'a> {
    /// Names that lie at `places` in the request `text`, each in quotes and without escapes.
    pub(super) fn in_request(text: &'a str, places: Vec<Range<u32>>) -> Self {
        Self { text: Cow::Borrowed(text), places }
    }

    /// Number of names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are no names.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The names in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> + Clone {
        self.places.iter().map(|place| self.at(place))
    }

    /// The names in order, as bytes: a decision compares thousands of them, and needs to know no characters.
    pub fn as_bytes(&self) -> impl Iterator<Item = &[u8]> {
        let bytes = self.text.as_bytes();
        self.places
            .iter()
            .map(|place| bytes.get(place.start as usize..place.end as usize).unwrap_or_default())
    }

    /// The name with this index; empty if there are fewer names.
    #[must_use]
    pub fn get(&self, index: usize) -> &str {
        self.places.get(index).map_or("", |place| self.at(place))
    }

    /// The places of the names in the request, if they lie there.
    #[must_use]
    pub fn places(&self) -> Option<&[Range<u32>]> {
        matches!(self.text, Cow::Borrowed(_)).then_some(&*self.places)
    }

    /// Number of bytes of all names.
    pub(super) fn bytes(&self) -> usize {
        self.places.iter().map(ExactSizeIterator::len).sum()
    }

    /// Whether no name is longer than so many bytes.
    pub(super) fn are_within(&self, bytes: usize) -> bool {
        self.places.iter().all(|place| place.len() <= bytes)
    }

    /// Appends the name with this index to `out` as JSON.
    ///
    /// # Errors
    /// None so far; the signature is serde_json's.
    #[inline]
    pub(super) fn encode(&self, index: usize, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        match &self.text {
            Cow::Borrowed(text) => {
                let quoted = |place: &Range<u32>| {
                    text.as_bytes().get((place.start as usize).checked_sub(1)?..place.end as usize + 1)
                };
                out.extend_from_slice(self.places.get(index).and_then(quoted).unwrap_or_default());
                Ok(())
            }
            Cow::Owned(_) => serde_json::to_writer(out, self.get(index)),
        }
    }

    fn at(&self, place: &Range<u32>) -> &str {
        self.text.get(place.start as usize..place.end as usize).unwrap_or_default()
    }
}

impl<'n> FromIterator<&'n str> for NodeNames<'_> {
    fn from_iter<I: IntoIterator<Item = &'n str>>(names: I) -> Self {
        let (text, places) = joined(names);
        Self { text: Cow::Owned(text), places }
    }
}

/// The names in one text, and the place of each.
pub(crate) fn joined<'n>(names: impl IntoIterator<Item = &'n str>) -> (String, Vec<Range<u32>>) {
    let (mut text, mut places) = (String::new(), Vec::new());
    for name in names {
        let from = u32::try_from(text.len()).unwrap_or(u32::MAX);
        text.push_str(name);
        places.push(from..u32::try_from(text.len()).unwrap_or(u32::MAX));
    }
    (text, places)
}
