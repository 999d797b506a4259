//! The metrics of all managers of a node as one text in the OpenMetrics format: each sample gets a label with the name
//! of its board.

use std::collections::HashMap;

/// The last line of a text in the OpenMetrics format.
const END: &str = "# EOF";

/// Families of metrics of several texts, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Exposition {
    families: Vec<Family>,
    by_name: HashMap<String, usize>,
}

/// The lines about one metric.
#[derive(Debug, Default)]
struct Family {
    /// Lines that begin with `#`: type, unit, help.
    descriptions: Vec<String>,
    samples: Vec<String>,
}

impl Exposition {
    /// Adds a text. With `board`, its samples get this label.
    pub(super) fn add(&mut self, board: Option<&str>, text: &str) {
        let mut current = None;
        for line in text.lines().filter(|line| !line.is_empty() && *line != END) {
            if let Some(description) = line.strip_prefix("# ") {
                let name = description.split(' ').nth(1).unwrap_or_default();
                let index = self.family(name);
                current = Some(index);
                let descriptions = &mut self.families[index].descriptions;
                if !descriptions.iter().any(|known| known == line) {
                    descriptions.push(line.to_owned());
                }
            } else if let Some(index) = current {
                let sample = board.map_or_else(|| line.to_owned(), |board| labelled(line, board));
                self.families[index].samples.push(sample);
            }
        }
    }

    /// The text of all families.
    pub(super) fn text(self) -> String {
        let lines = self
            .families
            .into_iter()
            .flat_map(|family| family.descriptions.into_iter().chain(family.samples));
        let mut text = lines.fold(String::new(), |text, line| text + &line + "\n");
        text.push_str(END);
        text.push('\n');
        text
    }

    fn family(&mut self, name: &str) -> usize {
        *self.by_name.entry(name.to_owned()).or_insert_with(|| {
            self.families.push(Family::default());
            self.families.len() - 1
        })
    }
}

/// A sample with the label `board`. Names of boards need no escapes.
fn labelled(sample: &str, board: &str) -> String {
    let Some(end_of_name) = sample.find(['{', ' ']) else { return sample.to_owned() };
    let (name, rest) = sample.split_at(end_of_name);
    match rest.strip_prefix('{') {
        Some(rest) if rest.starts_with('}') => format!("{name}{{board=\"{board}\"{rest}"),
        Some(labels) => format!("{name}{{board=\"{board}\",{labels}"),
        None => format!("{name}{{board=\"{board}\"}}{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_one_family_stand_together_and_have_the_name_of_their_board() {
        let text = |sessions: u32| {
            format!(
                "# HELP sessions Sessions.\n# TYPE sessions gauge\nsessions {sessions}\n# TYPE tasks counter\n\
                 tasks_total{{tenant=\"a {{b}}\"}} 2\n# EOF\n"
            )
        };
        let mut exposition = Exposition::default();
        exposition.add(None, "# TYPE restarts counter\nrestarts_total{board=\"x-1\"} 3\n# EOF\n");
        exposition.add(Some("x-0"), &text(4));
        exposition.add(Some("x-1"), &text(5));
        assert_eq!(
            exposition.text(),
            "# TYPE restarts counter\nrestarts_total{board=\"x-1\"} 3\n\
             # HELP sessions Sessions.\n# TYPE sessions gauge\nsessions{board=\"x-0\"} 4\nsessions{board=\"x-1\"} 5\n\
             # TYPE tasks counter\ntasks_total{board=\"x-0\",tenant=\"a {b}\"} 2\n\
             tasks_total{board=\"x-1\",tenant=\"a {b}\"} 2\n# EOF\n"
        );
    }
}
